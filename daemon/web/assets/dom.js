// Elements from plain values. Text is only ever text: nothing a workload named becomes markup.

const SVG = 'http://www.w3.org/2000/svg';

export function h(tag, properties, ...children) {
  const [name, ...classes] = tag.split('.');
  const isSvg = name === 'svg' || name.startsWith('svg:');
  const node = isSvg ? document.createElementNS(SVG, name.replace('svg:', '')) : document.createElement(name);
  if (classes.length) node.setAttribute('class', classes.join(' '));
  for (const [key, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'style') Object.assign(node.style, value);
    else node.setAttribute(key, value === true ? '' : value);
  }
  add(node, children);
  return node;
}

export function add(node, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child);
  }
  return node;
}

export function put(node, ...children) {
  node.replaceChildren();
  return add(node, children);
}

// Replaces what a node shows only where it has changed: selections and focus stay.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const facts = (rows) => h('dl.facts', {}, rows.filter(([, value]) => value !== '' && value !== undefined && value !== null)
  .map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));

export const empty = (title, ...text) => h('div.empty', {}, h('h2', {}, title), text);
