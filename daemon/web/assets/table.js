// A table that sorts, and that changes only what has changed: focus, selection and scroll stay where they are.

import {h, put, setText} from './dom.js';

// columns: {name, title, number, value(row) -> what is sorted by, text(row), node(row)}; options: key(row), sort,
// descending, detail(row) -> what an opened row shows, isOpen(row)/toggle(row).
export class LiveTable {
  constructor(columns, options) {
    this.columns = columns;
    this.options = options;
    this.sort = options.sort;
    this.descending = options.descending !== false;
    this.rows = new Map();
    this.body = h('tbody');
    this.heads = columns.map((column) => this.makeHead(column));
    this.node = h('div.scroll', {}, h('table', {}, h('thead', {}, h('tr', {}, this.heads)), this.body));
  }

  makeHead(column) {
    const style = column.number ? 'th.number' : 'th';
    if (!column.value) return h(style, {scope: 'col'}, h('span', {title: column.title}, column.name));
    return h(style, {scope: 'col'}, h('button', {type: 'button', title: column.title, onclick: () => {
      this.descending = this.sort === column.name ? !this.descending : Boolean(column.number);
      this.sort = column.name;
      this.show(this.shown);
    }}, column.name));
  }

  show(rows) {
    this.shown = rows;
    const by = this.columns.find((column) => column.name === this.sort);
    const sorted = by ? [...rows].sort((a, b) => {
      const x = by.value(a), y = by.value(b);
      return (x < y ? -1 : x > y ? 1 : 0) * (this.descending ? -1 : 1);
    }) : rows;
    this.columns.forEach((column, i) => {
      if (column.name === this.sort) this.heads[i].setAttribute('aria-sort', this.descending ? 'descending' : 'ascending');
      else this.heads[i].removeAttribute('aria-sort');
    });
    const kept = new Set();
    const wanted = [];
    for (const row of sorted) {
      const key = this.options.key(row);
      kept.add(key);
      wanted.push(...this.update(key, row));
    }
    for (const key of this.rows.keys()) if (!kept.has(key)) this.rows.delete(key);
    wanted.forEach((node, i) => { if (this.body.children[i] !== node) this.body.insertBefore(node, this.body.children[i] || null); });
    while (this.body.children.length > wanted.length) this.body.lastChild.remove();
  }

  update(key, row) {
    let entry = this.rows.get(key);
    if (!entry) this.rows.set(key, entry = this.makeRow(key));
    entry.row = row;
    this.columns.forEach((column, i) => {
      const node = column.node && column.node(row);
      if (column.node && node instanceof Node && node === entry.cells[i].firstChild) return;  // keeps its focus
      if (column.node) put(entry.cells[i], node);
      else setText(entry.cells[i], String(column.text(row)));
    });
    if (!this.options.detail) return [entry.line];
    entry.line.classList.toggle('open', entry.isOpen);
    entry.line.setAttribute('aria-expanded', String(entry.isOpen));
    if (!entry.isOpen) return [entry.line];
    put(entry.detail.firstChild, this.options.detail(row));
    return [entry.line, entry.detail];
  }

  makeRow() {
    const entry = {isOpen: false};
    entry.cells = this.columns.map((column) => h('td' + (column.number ? '.number' : '') + (column.wide ? '.wide' : '')));
    const toggle = () => { entry.isOpen = !entry.isOpen; this.show(this.shown); };
    entry.line = this.options.detail
      ? h('tr.opens', {tabindex: 0, onclick: toggle, onkeydown: (event) => {
          if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); toggle(); }
        }}, entry.cells)
      : h('tr', {}, entry.cells);
    entry.detail = h('tr.detail', {}, h('td', {colspan: this.columns.length}));
    return entry;
  }
}

// Words that must all be somewhere in a row's text.
export function matches(text, words) {
  const low = text.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => low.includes(word));
}
