// Kernels, GPUs and the sessions that tell of them.

import {read} from './api.js';
import {empty, facts, h, put} from './dom.js';
import {bytes, count, duration, num, percent, rate, shortName} from './format.js';
import {growth} from './history.js';
import {LiveTable, matches} from './table.js';

const INJECT = 'CUDA_INJECTION64_PATH=/…/libgpuperf_injector.so python3 train.py';
const howToInject = () => [h('p', {}, 'Kernels come from processes that load the injected library. Start a program with it; the program itself stays unchanged:'),
  h('pre', {}, INJECT), h('p', {}, 'Why a process is not seen:'), h('pre', {}, 'gpuperfctl doctor')];

let words = '';
let answer = null;

const share = (ratio) => h('span.share', {title: percent(ratio)}, h('i', {style: {width: `${Math.min(100, num(ratio) * 100)}%`}}));

const kernels = new LiveTable([
  {name: 'Kernel', value: (r) => r.short_name, node: (r) => h('span.mono', {title: r.kernel}, r.short_name || r.kernel), wide: true},
  {name: 'Launches/s', number: true, value: (r) => r.rate || 0, text: (r) => rate(r.rate)},
  {name: 'Launches', number: true, value: (r) => num(r.launches), text: (r) => (num(r.coverage) < 1 ? '≥ ' : '') + count(r.launches)},
  {name: 'GPU time', number: true, value: (r) => num(r.total_ns), node: (r) => [duration(r.total_ns), share(r.share_ratio)]},
  {name: 'p50', number: true, value: (r) => num(r.p50_ns), text: (r) => duration(r.p50_ns)},
  {name: 'p99', number: true, value: (r) => num(r.p99_ns), text: (r) => duration(r.p99_ns)},
  {name: 'Longest', number: true, value: (r) => num(r.max_ns), text: (r) => duration(r.max_ns)},
  {name: 'Launch latency p50', title: 'From the beginning of the launch call to the kernel’s start', number: true, value: (r) => num(r.launch_latency_p50_ns),
    text: (r) => num(r.joined_launches) ? duration(r.launch_latency_p50_ns) : '–'},
  {name: 'p99 ', number: true, value: (r) => num(r.launch_latency_p99_ns), text: (r) => num(r.joined_launches) ? duration(r.launch_latency_p99_ns) : '–'},
  {name: 'Queued p99', title: 'From the end of the launch call to the kernel’s start: behind other work', number: true, value: (r) => num(r.queue_delay_p99_ns),
    text: (r) => num(r.joined_launches) ? duration(r.queue_delay_p99_ns) : '–'},
], {key: (r) => r.kernel, sort: 'GPU time'});

const counter = h('span.right');
const noKernels = empty('No kernels yet', howToInject());
const kernelPanel = h('div.panel', {}, kernels.node);
const kernelNode = h('div', {}, h('div.bar-of-tools', {}, h('input', {type: 'search', placeholder: 'Filter: kernel  ( / )', 'aria-label': 'Filter kernels', id: 'filter',
  oninput: (event) => { words = event.target.value; showKernels(); }}), counter), kernelPanel, noKernels);

function showKernels() {
  if (!answer) return;
  const rows = answer.kernels.filter((row) => matches(row.kernel, words));
  noKernels.hidden = answer.kernels.length > 0;
  kernelPanel.hidden = answer.kernels.length === 0;
  counter.textContent = `${rows.length} of ${answer.kernels.length} kernels`;
  kernels.show(rows);
}

async function refreshKernels() {
  answer = await read('kernels', {'page.limit': 500});
  for (const row of answer.kernels) row.rate = growth('kernel ' + row.kernel, num(row.launches), num(answer.taken_mono_ns));
  showKernels();
}

export const kernelsView = {name: 'kernels', title: 'Kernels', node: kernelNode, refresh: refreshKernels};

// Hardware counters of a GPU, or of its GPU instances in MIG mode.
const COUNTERS = [['Engine', 'graphics_engine_active_ratio'], ['SMs', 'sm_active_ratio'], ['SM occupancy', 'sm_occupancy_ratio'], ['Tensor pipe', 'tensor_active_ratio'],
  ['DRAM', 'dram_active_ratio'], ['FP64 pipe', 'fp64_active_ratio'], ['FP32 pipe', 'fp32_active_ratio'], ['FP16 pipe', 'fp16_active_ratio'], ['Integer pipe', 'integer_active_ratio']];
const LINKS = [['PCIe', 'pcie'], ['NVLink', 'nvlink']];

function counters(told, title) {
  if (!told || (!num(told.window_ns) && !told.reason)) return null;
  if (!num(told.window_ns)) return h('p.dim', {}, `${title}: none, ${told.reason}`);
  const links = LINKS.filter(([, key]) => told[`${key}_transmit_bytes_per_second`] !== undefined).map(([name, key]) => [name,
    `${bytes(num(told[`${key}_transmit_bytes_per_second`]))}/s sent, ${bytes(num(told[`${key}_receive_bytes_per_second`]))}/s received`]);
  return h('div.counters', {}, h('span.dim', {title: 'From the GPU’s hardware counters (NVML GPM), all processes together'}, `${title}, average of ${duration(told.window_ns)}`),
    facts([...COUNTERS.filter(([, key]) => told[key] !== undefined).map(([name, key]) => [name, [percent(num(told[key])), share(told[key])]]), ...links]));
}

function allCounters(gpu) {
  const instances = new Map(gpu.mig_instances.filter((part) => part.counters).map((part) => [part.gpu_instance, part.counters]));
  if (!instances.size) return [counters(gpu.counters, 'Hardware counters')];
  return [...instances].map(([id, told]) => counters(told, `Hardware counters of GPU instance ${id}`));
}

const TONES = {ok: 'good', limited: '', slowed: 'warn', failing: 'bad', lost: 'bad'};

function card(gpu) {
  const state = shortName(gpu.state, 'GPU_STATE_');
  const used = num(gpu.memory_used_bytes) / (num(gpu.memory_total_bytes) || 1);
  const value = (field, text) => gpu[field] === undefined ? '' : text(num(gpu[field]));
  return h('div.panel', {}, h('div.headline', {}, h('h2', {}, `GPU ${gpu.index}`, h('span.category', {}, gpu.name)), h(`span.state.${TONES[state] || 'plain'}`, {}, state)),
    h('p', {}, gpu.verdict), gpu.hint ? h('p.warn', {}, gpu.hint) : null,
    h('span.dim', {}, 'Running kernels ', value('utilization_ratio', percent)), h('div.gpu-bar', {}, h('i', {style: {width: `${num(gpu.utilization_ratio) * 100}%`}})),
    h('span.dim', {}, `Memory ${value('memory_used_bytes', bytes)} of ${value('memory_total_bytes', bytes)}`), h('div.gpu-bar', {}, h('i', {style: {width: `${used * 100}%`}})),
    facts([['Power', gpu.power_watts === undefined ? '' : `${num(gpu.power_watts).toFixed(0)} of ${num(gpu.power_limit_watts).toFixed(0)} W`],
      ['Temperature', value('temperature_celsius', (v) => `${v} °C`)], ['Clock', value('sm_clock_hz', (v) => `${(v / 1e6).toFixed(0)} of ${(num(gpu.sm_clock_max_hz) / 1e6).toFixed(0)} MHz`)],
      ['Throttled by', gpu.limited_by], ['XIDs', gpu.xids.map((x) => `${x.xid} (${count(x.count)} ×, ${x.meaning})`).join('; ')]]), allCounters(gpu));
}

const TONE_OF_STATE = {collecting: 'good', failed: 'bad', yielded: 'warn', paused: 'warn'};
const sessions = new LiveTable([
  {name: 'Process', value: (r) => r.comm, text: (r) => `${r.comm} (${r.pid})`},
  {name: 'State', value: (r) => r.state, node: (r) => r.in_windows ? h('span.state.good', {title: `Recorded ${percent(num(r.collected_ns) / (num(r.age_ns) || 1))} of its life: always would exceed CUPTI's budget`}, 'in windows')
    : h(`span.state.${TONE_OF_STATE[r.state] || 'plain'}`, {title: r.detail}, r.cause === 'none' ? r.state : `${r.state}: ${r.cause.replaceAll('_', ' ')}`)},
  {name: 'Pod', value: (r) => r.pod, text: (r) => [r.namespace, r.pod].filter(Boolean).join('/')},
  {name: 'Records', number: true, value: (r) => num(r.received_records), text: (r) => count(r.received_records)},
  {name: 'Lost', number: true, value: (r) => num(r.lost_records), node: (r) => h(num(r.lost_records) ? 'span.warn' : 'span.dim', {}, count(r.lost_records))},
  {name: 'Launches', number: true, value: (r) => num(r.joined_launches), text: (r) => count(r.joined_launches)},
  {name: 'Copied', number: true, value: (r) => r.copies.reduce((sum, c) => sum + num(c.bytes), 0), text: (r) => bytes(r.copies.reduce((sum, c) => sum + num(c.bytes), 0))},
  {name: 'Waits for the GPU', number: true, value: (r) => r.syncs.reduce((sum, s) => sum + num(s.total_ns), 0), text: (r) => duration(r.syncs.reduce((sum, s) => sum + num(s.total_ns), 0))},
  {name: 'Age', number: true, value: (r) => num(r.age_ns), text: (r) => duration(r.age_ns)},
], {key: (r) => r.id, sort: 'Records'});

const cards = h('div.cards'), activity = h('div.panel'), sessionPanel = h('div.panel', {}, h('h2', {}, 'Sessions'), sessions.node);
const noSessions = empty('No process reports GPU work', howToInject());

async function refreshGpus() {
  const [gpus, told] = await Promise.all([read('gpus'), read('sessions', {'page.limit': 200})]);
  put(cards, gpus.gpus.map(card));
  if (!gpus.gpus.length) put(cards, h('div.panel', {}, h('h2', {}, 'No GPU health'), h('p.dim', {}, gpus.reason || 'No GPU has been read yet.')));
  activity.hidden = !told.activity.length;
  put(activity, h('h2', {}, 'GPU busy time, from sessions'), told.activity.map((gpu) => {
    const ratio = num(gpu.busy_ns) / (num(gpu.observed_ns) || 1);
    return [h('p', {}, `GPU ${gpu.gpu_ordinal} `, h('span.category.mono', {}, gpu.gpu_uuid), ` ${percent(ratio)} busy: kernels ${duration(gpu.kernel_ns)}, graphs ${duration(gpu.graph_ns)}, copies ${duration(gpu.copy_ns)} of ${duration(gpu.observed_ns)} recorded`),
      h('div.gpu-bar', {}, h('i', {style: {width: `${ratio * 100}%`}}))];
  }));
  noSessions.hidden = told.sessions.length > 0;
  sessionPanel.hidden = told.sessions.length === 0;
  sessions.show(told.sessions);
}

export const gpusView = {name: 'gpus', title: 'GPUs', node: h('div', {}, cards, activity, sessionPanel, noSessions), refresh: refreshGpus};
