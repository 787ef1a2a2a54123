// What the wall time of a capture went into, and what limits each process: gpuperfctl why.

import {read} from './api.js';
import {h} from './dom.js';
import {count, duration, num, percent, shortName} from './format.js';
import {bar, legend} from './parts.js';

// As client/why_text.cpp says them.
const VERDICTS = {gpu_bound: 'GPU-bound', launch_bound: 'launch-bound', input_bound: 'input-bound', communication_bound: 'communication-bound', idle: 'idle'};
const CAUSES = {
  gpu_computing: ['GPU computing', '--gpu'], gpu_communicating: ['GPU in NCCL kernels only', '--accent'], gpu_copying: ['GPU copying only', '--copy'],
  host_computing: ['GPU idle: host computing', '--user'], host_blocked: ['GPU idle: host blocked', '--blocked'], no_cpu: ['GPU idle: host without a CPU', '--throttle'],
  input: ['GPU idle: waiting for input or a copy', '--fault'], peer: ['GPU idle: waiting for a peer', '--wait'],
  launching: ['GPU idle: launching, and the way to the GPU', '--kernel'], gpu_of_others: ['GPU busy with other processes', '--dim'],
  nothing: ['GPU idle: nothing to do', '--line']};
const FINDINGS = 3;

const key = (value, prefix) => shortName(value, prefix).replaceAll(' ', '_');

function showFinding(finding, number) {
  const stretches = num(finding.stretches);
  const times = stretches === 1 ? 'Once.' : `${count(stretches)} times, ${duration(num(finding.time_ns) / stretches)} on average, ${duration(finding.longest_ns)} at most.`;
  const thread = finding.tid ? ` Thread ${finding.tid}${finding.thread_comm ? ` (${finding.thread_comm})` : ''}.` : '';
  const estimated = num(finding.estimated_ns) ? ` The place is estimated for ${percent(num(finding.estimated_ns) / num(finding.time_ns))}.` : '';
  return [h('p', {}, h('b', {}, `${number}. ${duration(finding.time_ns)} (${percent(finding.share_ratio)}) ${finding.text}`), ' ', times, thread, estimated, finding.detail ? ` ${finding.detail}` : ''),
    finding.advice ? h('p.explanation', {}, finding.advice) : null,
    finding.stack.length ? h('details', {}, h('summary', {}, 'Stack, innermost first'),
      h('ol.stack.mono', {}, [...finding.stack].reverse().map((frame) => h('li', {}, h(frame.endsWith('.py)') ? 'span.python' : 'span', {}, frame))))) : null,
    h('p.dim', {}, 'More: ', h('span.mono', {}, finding.command))];
}

function showProcess(process) {
  const parts = process.parts.map((part) => [num(part.time_ns), ...(CAUSES[key(part.cause, 'TIME_CAUSE_')] || ['not known', '--hover'])]);
  return h('section', {}, h('h2', {}, `${process.comm} (pid ${process.pid})${process.pod ? `, pod ${process.pod}` : ''}${process.gpu_uuid ? `, GPU ${process.gpu}` : ''}: `,
    VERDICTS[key(process.verdict, 'TIME_VERDICT_')] || 'limit not known'),
    h('p', {}, process.summary), bar(parts), legend(parts, num(process.wall_ns) || 1),
    process.findings.slice(0, FINDINGS).map((finding, i) => showFinding(finding, i + 1)));
}

export async function explain(id) {
  const {processes, notes} = await read('capture_explanation', {id, limit: FINDINGS});
  return h('div', {id: 'why'}, processes.length ? processes.map(showProcess) : h('p.dim', {}, 'The capture has no process that used a GPU or made probed calls.'),
    notes.map((note) => h('p.warn', {}, note)));
}
