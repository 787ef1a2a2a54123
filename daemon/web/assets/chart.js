// Lines over the last minutes, as SVG.

import {h} from './dom.js';
import {clock} from './format.js';

function points(samples, width, height, top, begin, end) {
  return samples.filter((s) => s.value !== null).map((s) => {
    const x = width * (s.at - begin) / Math.max(1, end - begin);
    return `${x.toFixed(1)},${(height - 1 - (height - 3) * s.value / top).toFixed(1)}`;
  });
}

function lines(samples, width, height, top, begin, end) {
  const at = points(samples, width, height, top, begin, end);
  if (at.length < 2) return [];
  const left = at[0].split(',')[0], right = at[at.length - 1].split(',')[0];
  return [h('svg:path.area', {d: `M${left},${height} L${at.join(' L')} L${right},${height} Z`}),
          h('svg:path.line', {d: `M${at.join(' L')}`})];
}

const span = (samples) => [Math.min(samples[0].at, samples[samples.length - 1].at - 60e3), samples[samples.length - 1].at];
const highest = (samples) => Math.max(...samples.map((s) => s.value || 0)) || 1;

export function sparkline(samples, width = 100, height = 30) {
  const node = h('svg.spark', {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true'});
  if (samples.length > 1) node.append(...lines(samples, width, height, highest(samples), ...span(samples)));
  return node;
}

// A chart with its scale; `format` writes values.
export function timeChart(title, samples, format) {
  const width = 600, height = 110;
  const node = h('svg.chart', {viewBox: `0 0 ${width} ${height + 20}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': title});
  if (samples.length < 2) return h('div', {}, h('h3', {}, title), h('p.dim', {}, 'The line begins with the next answers.'));
  const top = highest(samples), [begin, end] = span(samples);
  for (const part of [0, 0.5, 1]) {
    const y = height - 1 - (height - 3) * part;
    node.append(h('svg:line.grid', {x1: 0, x2: width, y1: y, y2: y}));
  }
  node.append(...lines(samples, width, height, top, begin, end));
  const last = samples[samples.length - 1].value;
  return h('div', {}, h('h3', {}, title), node,
    h('p.dim', {}, `${clock(begin * 1e6)} to ${clock(end * 1e6)} · now ${format(last || 0)} · highest ${format(top)}`));
}
