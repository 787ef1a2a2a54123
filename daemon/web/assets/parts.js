// What a time is made of: a bar and its legend. Parts are [nanoseconds, name, colour variable].

import {h} from './dom.js';
import {duration, percent} from './format.js';

export const bar = (parts) => h('div.parts', {role: 'img', 'aria-label': parts.map(([ns, name]) => `${name} ${duration(ns)}`).join(', ')},
  parts.map(([ns, name, colour]) => h('i', {title: `${name}: ${duration(ns)}`, style: {flexGrow: String(ns), flexBasis: '0', background: `var(${colour})`}})));

export const legend = (parts, whole) => h('div.legend', {}, parts.map(([ns, name, colour]) =>
  h('span', {}, h('i', {style: {background: `var(${colour})`}}), `${name} `, h('b', {}, duration(ns)), h('span.dim', {}, ` ${percent(ns / whole)}`))));
