// Slow calls: the list, and one of them with where its time went.

import {read} from './api.js';
import {add, empty, facts, h, put} from './dom.js';
import {bytes, clock, count, duration, moment, num, percent} from './format.js';
import {bar, legend} from './parts.js';

const PARTS = [['on_cpu_user_ns', 'on the CPU in the program', '--user'], ['on_cpu_kernel_ns', 'on the CPU in the kernel', '--kernel'],
  ['on_cpu_fault_ns', 'on the CPU in page faults', '--fault'], ['runnable_ns', 'waiting for a CPU', '--wait'],
  ['throttled_ns', 'throttled by its CPU quota', '--throttle'], ['blocked_ns', 'blocked', '--blocked']];
const STACK_ENDS = {cut: 'cut: more frames than are kept', unknown: 'ends where no unwind rule was known yet', unreadable: 'ends at memory that could not be read',
  broken: 'ends at code without unwind information'};

let sort = 'start_unix_ns';
let shownFunction = '';
let shownId = '';
let shownText = '';

const list = h('ul.calls', {'aria-label': 'Slow calls'});
const detail = h('div.panel');
const filter = h('input', {type: 'search', placeholder: 'Function (* matches anything)', 'aria-label': 'Function', id: 'filter',
  onchange: (event) => { location.hash = event.target.value ? `#slow?function=${encodeURIComponent(event.target.value)}` : '#slow'; }});
const order = h('select', {'aria-label': 'Order', onchange: (event) => { sort = event.target.value; refresh(); }},
  h('option', {value: 'start_unix_ns'}, 'Latest first'), h('option', {value: 'duration_ns'}, 'Longest first'));
const counter = h('span.right');
const split = h('div.split', {}, h('div.panel', {style: {padding: 0, overflow: 'hidden'}}, list), detail);
const nothing = h('div');
const node = h('div', {}, h('div.bar-of-tools', {}, filter, order, counter), split, nothing);

function showSplit(call) {
  if (!call.time_split) return h('p.dim', {}, 'Not known for this call.');
  const parts = PARTS.map(([field, name, colour]) => [num(call.time_split[field]), name, colour]).filter(([ns]) => ns > 0);
  return [bar(parts), legend(parts, num(call.duration_ns) || 1), (call.time_split.waits || []).map(showWait)];
}

const frameText = (frame) => `${frame.symbol || `0x${num(frame.address).toString(16)}`}` +
  (frame.file ? `  ${frame.file.split('/').slice(-2).join('/')}${frame.line ? ':' + frame.line : ''}` : frame.module ? `  ${frame.module.split('/').pop()}` : '');

const stack = (frames) => h('ol.stack.mono', {}, frames.map((frame) =>
  h('li', {title: [frame.file || frame.module, frame.kind].filter(Boolean).join(' · ')}, h(frame.kind === 'python' ? 'span.python' : 'span', {}, frameText(frame)))));

// The Python interpreter's own machine code, as client/stack_text.cpp knows it.
const isInterpreter = (frame) => frame.kind !== 'python' && /(^|\/)(python|(lib)?python3[^/]*)$/.test(frame.module || '');

function showUserStack(call) {
  const frames = call.user_stack;
  if (!frames.length) return h('p.dim', {}, 'None could be taken.');
  const shown = frames.some((frame) => frame.kind === 'python') ? frames.filter((frame) => !isInterpreter(frame)) : frames;
  const hidden = frames.length - shown.length;
  const list = h('div', {}, stack(shown));
  const more = hidden ? h('button.small', {id: 'interpreter-frames', type: 'button', onclick: () => { put(list, stack(frames)); more.remove(); }},
    `Show ${count(hidden)} interpreter frame${hidden === 1 ? '' : 's'}`) : null;
  return [list, more, STACK_ENDS[call.user_stack_end] ? h('p.dim', {}, STACK_ENDS[call.user_stack_end]) : null];
}

function showWait(wait) {
  const on = [wait.kind, wait.syscall, wait.file].filter(Boolean).join(', ');
  const by = wait.waker ? `; ended by ${wait.waker.comm} (${wait.waker.tid})` : '; ended by a timer or an interrupt';
  const frames = [...(wait.kernel_stack || [])];
  return h('details', {}, h('summary', {}, `waited ${duration(wait.duration_ns)} on ${on}${by}`),
    frames.length ? [h('h3', {}, 'In the kernel'), stack(frames)] : h('p.dim', {}, 'No stack of this wait.'),
    wait.waker && wait.waker.stack.length ? [h('h3', {}, `Who ended it: ${wait.waker.comm}`), stack(wait.waker.stack)] : null);
}

const launcher = (who) => who && (who.frame || who.operation || who.function)
  ? [who.operation, who.frame].filter(Boolean).join(' · ') || who.function : '';

const describeCounters = (device) => `GPU ${device.number} as a whole, all processes, average of ${duration(device.counters.window_ns)} around the call: `
  + [['SMs', 'sm_active_ratio'], ['occupancy', 'sm_occupancy_ratio'], ['tensor pipe', 'tensor_active_ratio'], ['DRAM', 'dram_active_ratio']]
    .filter(([, key]) => device.counters[key] !== undefined).map(([name, key]) => `${name} ${percent(num(device.counters[key]))}`).join(', ');

function showGpu(gpu, whole) {
  if (!gpu) return null;
  const busy = num(gpu.busy_ns), idle = num(gpu.idle_ns);
  const parts = [[busy, 'busy with this process', '--gpu'], [idle, 'without its work', '--blocked']].filter(([ns]) => ns > 0);
  const rows = [...gpu.kernels.map((k) => [k.short_name || k.kernel, num(k.total_ns), count(k.count), launcher(k.launcher)]),
    ...gpu.copies.map((c) => [c.direction === 'set' ? 'memset' : `copy ${c.direction.replaceAll('_', ' ')}`, num(c.total_ns), count(c.count), bytes(c.copied_bytes)])];
  return [h('h3', {}, 'What the GPU did meanwhile'),
    parts.length ? [bar(parts), legend(parts, whole)] : h('p.dim', {}, 'Not known.'),
    gpu.awaited ? h('p', {}, 'Waited for ', h('span.mono', {}, gpu.awaited.name), ` (${duration(gpu.awaited.duration_ns)} on the GPU, `
      + `${duration(gpu.awaited.queued_ns)} queued)`, launcher(gpu.awaited.launcher) ? `, launched by ${launcher(gpu.awaited.launcher)}` : '') : null,
    rows.length ? h('div.scroll', {}, h('table', {}, h('tbody', {}, rows.map(([name, ns, times, who]) => h('tr', {}, h('td.wide.mono', {}, name),
      h('td.number', {}, duration(ns)), h('td.number.dim', {}, `${times} ×`), h('td.wide.dim', {}, who)))))) : null,
    num(gpu.others_ns) ? h('p', {}, `Other processes had the GPU for ${duration(gpu.others_ns)}: ${gpu.others.map((o) => `${o.comm} (${o.pid})`).join(', ')}`) : null,
    gpu.devices.map((device) => device.counters ? h('p', {}, describeCounters(device)) : null),
    gpu.missing.map((text) => h('p.warn', {}, text))];
}

function showCall(call) {
  const whole = num(call.duration_ns) || 1;
  put(detail,
    h('div.headline', {}, h('h2.mono', {}, call.function, h('span.category', {}, call.category)), h('span.took', {}, duration(call.duration_ns))),
    call.in_flight ? h('p.warn', {}, `Still in flight; its thread is ${call.state}.`) : null,
    h('p.explanation', {id: 'explanation'}, call.explanation || 'No explanation: the time split is not known.'),
    h('h3', {}, 'Where the time went'), showSplit(call), showGpu(call.gpu, whole),
    call.arguments.length ? [h('h3', {}, 'Arguments'), facts(call.arguments.map((a) => [h('span.mono', {}, a.name), h('span.mono', {}, a.value)])),
      call.return_value ? h('p', {}, h('span.dim', {}, 'returned '), h('span.mono', {}, call.return_value)) : null] : null,
    call.children.length ? [h('h3', {}, 'Probed calls inside'), facts(call.children.map((c) => [c.function, `${count(c.calls)} calls, ${duration(c.total_ns)}`]))] : null,
    h('h3', {}, 'Stack, innermost first'),
    showUserStack(call),
    h('h3', {}, 'Who and when'), facts([['Process', `${call.comm} (pid ${call.pid}, thread ${call.tid})`], ['Inside of', call.outer.join(' → ')],
      ['Pod', [call.namespace, call.pod].filter(Boolean).join('/')], ['Container', call.container],
      ['Slurm', call.slurm_job ? `job ${call.slurm_job}, rank ${call.slurm_rank}` : ''], ['Started', moment(call.start_unix_ns)],
      ['Slow because', call.reason === 'adaptive' ? `unusual for this function: over ${duration(call.threshold_ns)}` : `over its threshold of ${duration(call.threshold_ns)}`],
      ['Id', call.id]]));
}

async function showDetail(id) {
  if (!id) return put(detail, h('p.dim', {}, 'Choose a call to see where its time went.'));
  let call;
  try {
    ({slow_call: call} = await read('slow_call', {id}));
  } catch (error) {
    if (error.status !== 404) throw error;
    return put(detail, h('p', {}, 'This call is no longer kept. storage.history_hours and storage.retention_days set how long calls are kept.'));
  }
  const text = JSON.stringify(call);
  if (text !== shownText) showCall(call);  // an opened detail stays open while nothing changes
  shownText = text;
}

async function refresh() {
  const parameters = {sort, 'page.limit': 200};
  if (shownFunction) parameters['filter.function'] = shownFunction;
  const {slow_calls: calls, next_page_token: more} = await read('slow_calls', parameters);
  counter.textContent = `${calls.length}${more ? ' of more' : ''} slow call${calls.length === 1 && !more ? '' : 's'} kept`;
  split.hidden = calls.length === 0 && !shownId;
  put(nothing, calls.length ? null : empty(shownFunction ? `No slow call of ${shownFunction} is kept` : 'No slow call so far',
    h('p', {}, 'A call is slow when it takes longer than its threshold, 100 ms unless the configuration says otherwise, or much longer than its function usually does.'),
    h('p', {}, 'To see more of them, lower a threshold:'), h('pre', {}, "sudo gpuperfctl probes threshold 'cudaMemcpy*' 1ms")));
  const rows = calls.map((call) => h('li', {}, h('a', {href: `#slow/${call.id}${shownFunction ? '?function=' + encodeURIComponent(shownFunction) : ''}`, 'data-id': call.id},
    h('span.mono', {}, call.function), h('span.took', {}, duration(call.duration_ns)),
    h('span.dim', {}, `${call.comm} (${call.pid})${call.pod ? ' · ' + call.pod : ''}`), h('span.dim', {}, clock(call.start_unix_ns)),
    h('span.why', {}, call.explanation))));
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.id : null;
  const top = list.scrollTop;
  if (list.dataset.shown !== JSON.stringify(calls.map((c) => [c.id, c.duration_ns, c.explanation]))) {
    add(put(list), rows);
    list.dataset.shown = JSON.stringify(calls.map((c) => [c.id, c.duration_ns, c.explanation]));
    list.scrollTop = top;
    if (focused) list.querySelector(`[data-id="${focused}"]`)?.focus();
  }
  for (const a of list.querySelectorAll('a')) a.toggleAttribute('aria-current', a.dataset.id === shownId);
  await showDetail(shownId || (calls[0] && innerWidth > 1000 ? calls[0].id : ''));
}

// `rest`: what follows "#slow": "/12?function=f".
function open(rest) {
  const [path, query] = rest.split('?');
  shownId = path.replace('/', '');
  shownFunction = new URLSearchParams(query || '').get('function') || '';
  filter.value = shownFunction;
}

export const slowView = {name: 'slow', title: 'Slow calls', node, refresh, open};
