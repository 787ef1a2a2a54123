// What the wall time of a capture went into, and what limits each process: gpuperfctl why.

import {read} from './api.js';
import {h} from './dom.js';
import {count, duration, num, percent, shortName} from './format.js';
import {bar, legend} from './parts.js';

const COLORS = {
  gpu_computing: '--gpu', gpu_communicating: '--accent', gpu_copying: '--copy', host_computing: '--user', host_blocked: '--blocked', no_cpu: '--throttle',
  input: '--fault', peer: '--wait', launching: '--kernel', gpu_of_others: '--dim', nothing: '--line'};
const FINDINGS = 3;

const findColor = (cause) => COLORS[shortName(cause, 'TIME_CAUSE_').replaceAll(' ', '_')] || '--hover';

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
  const parts = process.parts.map((part) => [num(part.time_ns), part.text, findColor(part.cause)]);
  return h('section', {}, h('h2', {}, `${process.comm} (pid ${process.pid})${process.pod ? `, pod ${process.pod}` : ''}${process.gpu_uuid ? `, GPU ${process.gpu}` : ''}: `,
    process.verdict_text),
    h('p', {}, process.summary), bar(parts), legend(parts, num(process.wall_ns) || 1),
    process.findings.slice(0, FINDINGS).map((finding, i) => showFinding(finding, i + 1)));
}

export async function explain(id) {
  const {processes, notes} = await read('capture_explanation', {id, limit: FINDINGS});
  return h('div', {id: 'why'}, processes.length ? processes.map(showProcess) : h('p.dim', {}, 'The capture has no process that used a GPU or made probed calls.'),
    notes.map((note) => h('p.warn', {}, note)));
}
