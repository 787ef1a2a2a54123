// Captures: begin one, and look at one.

import {change, isServed, linkView, read} from './api.js';
import {empty, facts, h, put} from './dom.js';
import {bytes, count, duration, moment, num, percent, shortName} from './format.js';
import {LiveTable} from './table.js';
import {explain} from './why.js';

const FILES = [['chrome', 'Chrome trace (JSON)', 'json'], ['perfetto', 'Perfetto trace', 'pftrace'], ['pprof', 'pprof profile', 'pb.gz'], ['folded', 'Folded stacks', 'folded'],
  ['extended-folded', 'Launches, one a line', 'txt'], ['flamegraph', 'Flame graph (SVG)', 'svg'], ['report', 'Report (HTML)', 'html']];
const DONE = 'CAPTURE_STATE_STORED', FAILED = 'CAPTURE_STATE_FAILED', BUILDING = 'CAPTURE_STATE_BUILDING';

let hasTimeline = null;
let mayChange = false;  // with this token
let onRefused = () => {};
let refreshSoon = () => {};
export function setUpCaptures(handlers) {
  ({onRefused, refreshSoon} = handlers);
}

const message = h('p', {role: 'status', id: 'capture-message'});
const recorder = h('div');
const viewer = h('div.panel', {id: 'viewer', hidden: true});

// Whatever a button does: errors are said where the button is.
async function attempt(what, work) {
  message.className = 'dim';
  message.textContent = `${what} …`;
  try {
    message.textContent = await work() || '';
    refreshSoon();
  } catch (error) {
    message.className = 'bad';
    message.textContent = error.message;
    if (error.status === 401 || error.status === 403) onRefused(error);
  }
}

const number = (name, label, value, more) => h('label', {}, label, h('input', {name, type: 'number', min: 0, value, ...more}));
const text = (name, label, placeholder) => h('label', {}, label, h('input', {name, placeholder, maxlength: 128, autocomplete: 'off'}));
const form = h('form.form', {onsubmit: (event) => {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(form));
  const target = {pid: num(given.pid), with_children: num(given.pid) > 0, container: given.container, pod: given.pod};
  attempt('Starting', async () => {
    const {capture} = await change('start_capture', {name: given.name, target, duration_ms: Math.round(num(given.seconds) * 1000), parts: given.parts});
    return `Capture ${capture.id} runs for ${given.seconds} s.`;
  });
}}, number('seconds', 'Seconds', 5, {min: 0.1, max: 600, step: 'any', required: true}), number('pid', 'Process (pid)', '', {placeholder: 'every'}),
  text('container', 'Container', 'every'), text('pod', 'Pod', 'every'), text('name', 'Name', 'optional'),
  h('label', {}, 'What', h('select', {name: 'parts'}, h('option', {value: 'CAPTURE_PARTS_ALL'}, 'CPU and GPU'), h('option', {value: 'CAPTURE_PARTS_CPU'}, 'CPU'), h('option', {value: 'CAPTURE_PARTS_GPU'}, 'GPU'))),
  h('button.main', {id: 'start-capture'}, 'Capture'),
  h('button', {type: 'button', id: 'freeze', title: 'Makes a capture of the last seconds, which are always in memory', onclick: () => attempt('Freezing', async () => {
    const {capture} = await change('freeze_recorder', {name: new FormData(form).get('name')});
    return `Capture ${capture.id} holds the last seconds.`;
  })}, 'Freeze recorder'));

// In place of the form where the token may only read.
const whyNot = h('span');
const readOnly = h('p.dim', {id: 'read-only', hidden: true}, whyNot, ' ',
  h('button.small', {type: 'button', onclick: () => onRefused(new Error(whyNot.textContent))}, 'Enter the other token'));

function showAccess(access) {
  if (mayChange !== access.may_change) made.clear();  // rows have other buttons
  mayChange = access.may_change;
  form.hidden = !mayChange;
  readOnly.hidden = mayChange;
  whyNot.textContent = access.why_not;
}

const safeName = (row) => `${(row.name || 'capture').replace(/[^A-Za-z0-9_-]+/g, '-')}-${row.id}`;

async function save(row, format, suffix) {
  const path = await linkView(row.id, format);
  const response = await fetch(path);
  if (!response.ok) throw Object.assign(new Error((await response.json()).error), {status: response.status});
  const url = URL.createObjectURL(await response.blob());
  h('a', {href: url, download: `${safeName(row)}.${suffix}`}).click();
  setTimeout(() => URL.revokeObjectURL(url), 60e3);
}

const WEIGHTS = [['CAPTURE_WEIGHT_GPU_TIME', 'GPU time'], ['CAPTURE_WEIGHT_CPU_TIME', 'CPU time'], ['CAPTURE_WEIGHT_OFF_CPU_TIME', 'Time off the CPU']];

const nameOf = (row) => `${row.name || `capture ${row.id}`}, ${moment(row.start_unix_ns)}`;
const closer = () => h('button.small', {type: 'button', onclick: () => { viewer.hidden = true; put(viewer); }}, 'Close');

async function showWhy(row) {
  const answer = await explain(row.id);
  viewer.hidden = false;
  put(viewer, h('div.bar-of-tools', {}, h('h2', {}, nameOf(row)), h('span.right'), closer()), answer);
  viewer.scrollIntoView({block: 'start'});
}

async function look(row, format, weight) {
  const title = nameOf(row);
  const path = await linkView(row.id, format, {title: title.slice(0, 200), ...(weight ? {weight} : {})});
  viewer.hidden = false;
  put(viewer, h('div.bar-of-tools', {}, h('h2', {}, title),
    format === 'flamegraph' ? h('select', {'aria-label': 'Weight', onchange: (event) => attempt('Making it', () => look(row, format, event.target.value))},
      WEIGHTS.map(([value, name]) => h('option', {value, selected: value === weight}, name))) : null,
    h('span.right', {}, h('a', {href: path, target: '_blank', rel: 'noopener'}, 'In a new tab')), closer()),
    h('iframe.shown', {src: path, title, sandbox: 'allow-scripts allow-downloads'}));
  viewer.scrollIntoView({block: 'start'});
}

async function openTimeline(row) {
  const tab = open('', '_blank');  // at once: a tab that comes later is taken for an advertisement
  try {
    const path = await linkView(row.id, 'chrome');
    tab.location = `/ui/speedscope/index.html#profileURL=${encodeURIComponent(path)}&title=${encodeURIComponent(row.name || `capture ${row.id}`)}`;
  } catch (error) {
    tab.close();
    throw error;
  }
}

function actions(row) {
  const act = (name, what, work, style) => h('button.small' + (style || ''), {type: 'button', 'data-action': name.toLowerCase(), onclick: () => attempt(what, work)}, name);
  const ends = [DONE, FAILED, BUILDING, 'CAPTURE_STATE_SETTLING'].includes(row.state);
  if (!ends) return mayChange && h('span.buttons', {}, act('Stop', 'Stopping', async () => { await change('stop_capture', {id: row.id}); }));
  if (row.state !== DONE && row.state !== FAILED) return null;
  const remove = act('Delete', 'Deleting', async () => {
    if (!confirm(`Delete capture ${row.id}?`)) return;
    await change('delete_capture', {id: row.id});
  }, '.bad');
  if (row.state === FAILED && !mayChange) return null;
  if (row.state === FAILED) return h('span.buttons', {}, remove);
  // Without the viewer (deploy/fetch_viewer.sh) there is the report's timeline.
  const timeline = hasTimeline ? act('Timeline', 'Opening', () => openTimeline(row)) : null;
  return h('span.buttons', {}, act('Why', 'Looking for what limits it', () => showWhy(row)), act('Flame graph', 'Making it', () => look(row, 'flamegraph')), act('Report', 'Making it', () => look(row, 'report')), timeline,
    h('details.menu', {}, h('summary', {}, 'Files'), h('div', {}, FILES.map(([format, name, suffix]) =>
      h('button.small', {type: 'button', onclick: () => attempt('Making it', () => save(row, format, suffix))}, name)))), mayChange ? remove : null);
}

const TONES = {stored: 'good', failed: 'bad', running: 'warn'};
const matched = (r) => num(r.work) ? `${count(r.work)}, ${percent(num(r.work_matched) / num(r.work))} matched` : '–';
const table = new LiveTable([
  {name: 'Id', number: true, value: (r) => num(r.id), text: (r) => r.id},
  {name: 'Name', value: (r) => r.name, text: (r) => r.name || '–', wide: true},
  {name: 'Begun by', value: (r) => r.trigger, text: (r) => r.trigger.replaceAll('_', ' ')},
  {name: 'State', value: (r) => r.state, node: (r) => { const state = shortName(r.state, 'CAPTURE_STATE_'); return h(`span.state.${TONES[state] || 'plain'}`, {title: r.problem}, state); }},
  {name: 'Start', value: (r) => num(r.start_unix_ns), text: (r) => moment(r.start_unix_ns)},
  {name: 'Length', number: true, value: (r) => num(r.duration_ns), text: (r) => duration(r.duration_ns)},
  {name: 'Launches', number: true, value: (r) => num(r.launches), text: (r) => count(r.launches)},
  {name: 'GPU work', number: true, value: (r) => num(r.work), text: matched},
  {name: 'Size', number: true, value: (r) => num(r.stored_bytes), text: (r) => num(r.stored_bytes) ? bytes(r.stored_bytes) : '–'},
  {name: '', node: (r) => r.buttons},
], {key: (r) => r.id, sort: 'Id'});

// Buttons are made anew only when what they do has changed: an opened menu stays open.
const made = new Map();
function withButtons(row) {
  const known = made.get(row.id);
  row.buttons = known && known.state === row.state ? known.buttons : actions(row);
  made.set(row.id, row);
  return row;
}

const tablePanel = h('div.panel', {}, table.node);
const nothing = empty('No captures yet', h('p', {}, 'A capture is a window of time with every launch, kernel, copy and wait, and the line of code that caused each. '
  + 'Capture a few seconds now, or keep the last seconds, which are always in memory.'));

async function refresh() {
  if (hasTimeline === null) hasTimeline = await isServed('/ui/speedscope/index.html');
  const [access, {captures, recorder: held}] = await Promise.all([read('access'), read('captures', {'page.limit': 200})]);
  showAccess(access);
  put(recorder, facts([['Flight recorder', held.enabled ? `${duration(held.span_ns)} held, ${count(held.events)} events, ${bytes(held.bytes)} of ${bytes(held.max_bytes)}`
    : 'off (trace.recorder)']]));
  document.getElementById('freeze').disabled = !held.enabled;
  nothing.hidden = captures.length > 0;
  tablePanel.hidden = captures.length === 0;
  table.show(captures.map(withButtons));
}

const node = h('div', {}, h('div.panel', {}, form, readOnly, message, recorder), tablePanel, viewer, nothing);
export const capturesView = {name: 'captures', title: 'Captures', node, refresh};
