// The table of functions: who is called how often, how long it takes, what fails.

import {read} from './api.js';
import {sparkline, timeChart} from './chart.js';
import {empty, h} from './dom.js';
import {bytes, count, duration, num, percent, rate} from './format.js';
import {growth, note, recent} from './history.js';
import {LiveTable, matches} from './table.js';

const key = (row) => `${row.category}/${row.function}`;
let words = '';
let answer = null;

// Takes an answer into the history; on every turn, whatever is shown.
export async function refreshFunctions() {
  answer = await read('functions', {'page.limit': 1000});
  const mono = num(answer.taken_mono_ns);
  for (const row of answer.functions) {
    row.rate = growth(key(row), num(row.calls), mono);
    row.errorRate = growth(key(row) + ' errors', num(row.errors), mono);
    const time = growth(key(row) + ' time', num(row.total_ns), mono);
    note(key(row), row.rate);
    note(key(row) + ' errors', row.errorRate);
    note(key(row) + ' mean', row.rate ? time / row.rate : null);
  }
  return answer.functions;
}

const LEAST_ONLY = 2n ** 64n - 1n;  // see CallsEstimate.calls_error

function describeMissed(missed) {
  if (BigInt(missed.calls_error) === LEAST_ONLY) return `at least ${count(missed.calls)} calls`;
  return `about ${count(missed.calls)} calls, give or take ${count(missed.calls_error)}`;
}

function showDetail(row) {
  const codes = row.error_counts.map((error) => `${error.error}: ${count(error.count)}`).join(', ');
  const moved = row.bytes_by_direction.map((part) => `${part.direction.replaceAll('_', ' ')} ${bytes(part.bytes)}`).join(', ');
  const facts = [['Shortest, mean', `${duration(row.min_ns)}, ${duration(row.avg_ns)}`],
    ['p90, p99.9, longest', `${duration(row.p90_ns)}, ${duration(row.p999_ns)}, ${duration(row.max_ns)}`],
    ['Own time', `${duration(row.self_ns)} of ${duration(row.total_ns)}`], ['Errors', codes], ['Bytes', moved],
    ['Never returned', num(row.abandoned) ? count(row.abandoned) : ''], ['Without a duration', num(row.untimed) ? count(row.untimed) : ''],
    ['Oldest in flight', num(row.oldest_in_flight_ns) ? duration(row.oldest_in_flight_ns) : ''],
    ['Probed', num(row.coverage) < 1 ? `${percent(row.coverage)} of the time: counts do not include the rest` : ''],
    ['Not counted', row.missed ? describeMissed(row.missed) : '']];
  return [h('div.two', {}, timeChart('Calls per second', recent(key(row)), rate), timeChart('Mean time', recent(key(row) + ' mean'), duration)),
    h('dl.facts', {}, facts.filter(([, value]) => value).map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])),
    h('p', {}, h('a', {href: `#slow?function=${encodeURIComponent(row.function)}`}, 'Its slow calls'))];
}

const table = new LiveTable([
  {name: 'Function', value: (r) => r.function, node: (r) => [h('span.mono', {}, r.function), h('span.category', {}, r.category)], wide: true},
  {name: 'Calls/s', number: true, value: (r) => r.rate || 0, node: (r) => [rate(r.rate), sparkline(recent(key(r)), 84, 18)]},
  {name: 'Calls', number: true, value: (r) => num(r.calls), text: (r) => count(r.calls)},
  {name: 'Errors', number: true, value: (r) => num(r.errors), node: (r) => h(num(r.errors) ? 'span.bad' : 'span.dim', {}, count(r.errors))},
  {name: 'p50', number: true, value: (r) => num(r.p50_ns), text: (r) => duration(r.p50_ns)},
  {name: 'p99', number: true, value: (r) => num(r.p99_ns), text: (r) => duration(r.p99_ns)},
  {name: 'Longest', number: true, value: (r) => num(r.max_ns), text: (r) => duration(r.max_ns)},
  {name: 'Slow', number: true, value: (r) => num(r.slow_calls), node: (r) => num(r.slow_calls)
    ? h('a', {href: `#slow?function=${encodeURIComponent(r.function)}`, onclick: (event) => event.stopPropagation()}, count(r.slow_calls)) : h('span.dim', {}, '0')},
  {name: 'In flight', number: true, value: (r) => num(r.in_flight), text: (r) => count(r.in_flight)},
  {name: 'Total time', number: true, value: (r) => num(r.total_ns), text: (r) => duration(r.total_ns)},
], {key, sort: 'Total time', detail: showDetail});

const counter = h('span.right');
const nothing = empty('No calls yet',
  h('p', {}, 'The probes are attached, but no program has called a probed function yet. Programs that already run count too: you do not need to restart them.'),
  h('p', {}, 'Whether the libraries were found, and what to do if not:'), h('pre', {}, 'gpuperfctl doctor'));
const node = h('div', {},
  h('div.bar-of-tools', {}, h('input', {type: 'search', placeholder: 'Filter: function or category  ( / )', 'aria-label': 'Filter functions', id: 'filter',
    oninput: (event) => { words = event.target.value; show(); }}), counter),
  h('div.panel', {}, table.node), nothing);

function show() {
  if (!answer) return;
  const rows = answer.functions.filter((row) => matches(key(row), words));
  nothing.hidden = answer.functions.length > 0;
  table.node.parentNode.hidden = answer.functions.length === 0;
  counter.textContent = `${rows.length} of ${answer.functions.length} functions${answer.next_page_token ? ', the 1000 with most time' : ''}`;
  table.show(rows);
}

export const functionsView = {name: 'functions', title: 'Functions', node, refresh: async () => show()};
