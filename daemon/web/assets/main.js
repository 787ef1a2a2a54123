// The page's turn: every two seconds it asks, notes and shows, as long as somebody looks.

import {ApiError, hasToken, read, setToken, takeTokenOfAddress} from './api.js';
import {capturesView, setUpCaptures} from './captures.js';
import {sparkline} from './chart.js';
import {daemonView} from './daemon.js';
import {h, put} from './dom.js';
import {count, num, percent, rate} from './format.js';
import {functionsView, refreshFunctions} from './functions.js';
import {gpusView, kernelsView} from './gpus.js';
import {growthOver, note, recent} from './history.js';
import {slowView} from './slow.js';

const PERIOD_MS = 2000;
const VIEWS = [functionsView, slowView, kernelsView, gpusView, capturesView, daemonView];

const by = (id) => document.getElementById(id);
let shown = functionsView;
let paused = false;
let timer = 0;
let turn = 0;
let answeredAt = 0;
let badges = {};

function showTabs() {
  put(by('tabs'), VIEWS.map((view) => h('a', {href: `#${view.name}`, 'aria-current': view === shown ? 'page' : undefined}, view.title,
    badges[view.name] ? h('span.badge', {title: badges[view.name].title}, badges[view.name].text) : null)));
}

function route() {
  if (location.hash.startsWith('#token=')) {
    takeTokenOfAddress();
    by('token').close();
  }
  const [, name, rest] = location.hash.match(/^#([a-z]+)(.*)$/) || ['', 'functions', ''];
  const next = VIEWS.find((view) => view.name === name) || functionsView;
  if (next.open) next.open(rest);
  if (next !== shown || !by('view').firstChild) put(by('view'), next.node);
  shown = next;
  document.title = `${shown.title} · gpuperf`;
  showTabs();
  refreshSoon();
}

const TILES = [
  {name: 'Calls/s', key: 'all calls', text: rate, href: '#functions'},
  {name: 'Errors/s', key: 'all errors', text: rate, href: '#functions', isAlert: (value) => value > 0},
  {name: 'Slow calls', key: 'slow', href: '#slow', text: rate, unit: '/min', more: (s) => `${count(s.slow_calls)} in all`},
  {name: 'In flight', key: 'in flight', href: '#functions', text: count},
  {name: 'Launches/s', key: 'launches', href: '#kernels', text: rate},
  {name: 'CPU of the daemon', key: 'cpu', href: '#daemon', text: percent},
];

function showTiles(status, functions) {
  const known = functions.filter((row) => row.rate !== null);  // from the second answer on
  const sum = (field) => known.length || !functions.length ? known.reduce((total, row) => total + row[field], 0) : null;
  note('all calls', sum('rate'));
  note('all errors', sum('errorRate'));
  note('in flight', functions.reduce((total, row) => total + num(row.in_flight), 0));
  const slow = growthOver('slow', num(status.slow_calls), 60e3);
  note('slow', slow === null ? null : slow * 60);
  note('launches', growthOver('launches', num(status.kernel_launches), 10e3));
  const cpu = growthOver('cpu', num(status.cpu_ns), 10e3);
  note('cpu', cpu === null ? null : cpu / 1e9);
  if (!by('tiles').firstChild) put(by('tiles'), TILES.map((tile) => h('a.tile', {href: tile.href, id: `tile-${tile.key.replaceAll(' ', '-')}`})));
  TILES.forEach((tile, i) => {
    const samples = recent(tile.key);
    const {value} = samples[samples.length - 1];
    const node = by('tiles').children[i];
    node.classList.toggle('alert', Boolean(tile.isAlert && tile.isAlert(value)));
    put(node, h('div.name', {}, tile.name, tile.more ? `, ${tile.more(status)}` : ''),
      h('div.value', {}, value === null ? '–' : tile.text(value), tile.unit ? h('span.more', {}, tile.unit) : null), sparkline(samples, 200, 34));
  });
}

function showBadges(status) {
  badges = {daemon: status.problems.length ? {text: status.problems.length, title: 'things that do not work'} : null,
    gpus: status.gpus_in_trouble ? {text: status.gpus_in_trouble, title: 'GPUs in trouble'} : null};
  const text = JSON.stringify(badges);
  if (by('tabs').dataset.badges !== text) showTabs();
  by('tabs').dataset.badges = text;
}

function askForToken(why) {
  const dialog = by('token');
  by('token-why').textContent = why;
  const path = why.match(/\/\S+\.token/);
  by('token-command').textContent = `sudo cat ${path ? path[0] : '/run/gpuperf/page.token'}`;
  if (!dialog.open) dialog.showModal();
  by('token-text').value = '';
  by('token-text').focus();
}

function showFailure(error) {
  const banner = by('banner');
  banner.hidden = false;
  by('live').className = 'is-gone';
  by('live-text').textContent = 'not live';
  if (!(error instanceof ApiError)) {
    banner.textContent = `The page failed: ${error.message}. Please report it; reloading may help.`;
    throw error;  // with its place into the console
  }
  if (error.status === 401) {
    banner.replaceChildren(hasToken() ? 'The token belongs to an earlier run of gpuperfd. ' : 'The page needs a token. ',
      h('button.small', {type: 'button', onclick: () => askForToken(error.message)}, 'Enter it'));
    if (!by('token').open && !paused) askForToken(error.message);
    paused = true;
    by('pause').textContent = 'Go on';
    return;
  }
  const since = answeredAt ? ` since ${new Date(answeredAt).toLocaleTimeString([], {hour12: false})}` : '';
  banner.textContent = error.status === 0 ? `gpuperfd does not answer${since}. The page retries every few seconds. Check that it runs: systemctl status gpuperfd` : `${error.message}`;
}

// One at a time; a turn that something newer has overtaken shows nothing.
async function refresh() {
  clearTimeout(timer);
  const mine = ++turn;
  try {
    if (!hasToken()) throw new ApiError(401, (await read('status').catch((error) => error)).message);
    const [status, functions] = await Promise.all([read('status'), refreshFunctions()]);
    if (mine !== turn) return;
    showTiles(status, functions);
    showBadges(status);
    await shown.refresh(status);
    answeredAt = Date.now();
    by('banner').hidden = true;
    by('live').className = 'is-live';
    by('live-text').textContent = `live · ${new Date().toLocaleTimeString([], {hour12: false})}`;
  } catch (error) {
    if (mine === turn) showFailure(error);
  } finally {
    if (mine === turn && !paused && !document.hidden) timer = setTimeout(refresh, PERIOD_MS);
  }
}

function refreshSoon() {
  clearTimeout(timer);
  timer = setTimeout(refresh, 0);
}

function setPaused(value) {
  paused = value;
  by('pause').textContent = paused ? 'Go on' : 'Pause';
  if (paused) {
    clearTimeout(timer);
    by('live').className = '';
    by('live-text').textContent = 'paused';
  } else {
    refreshSoon();
  }
}

by('pause').addEventListener('click', () => setPaused(!paused));
by('token').addEventListener('close', () => {
  if (by('token').returnValue !== 'use' || !by('token-text').value) return;
  setToken(by('token-text').value);
  setPaused(false);
});
document.addEventListener('visibilitychange', () => { if (!document.hidden && !paused) refreshSoon(); });
document.addEventListener('keydown', (event) => {
  if (event.target.closest('input, select, textarea, dialog') || event.ctrlKey || event.metaKey || event.altKey) return;
  const at = Number(event.key) - 1;
  if (VIEWS[at]) location.hash = `#${VIEWS[at].name}`;
  else if (event.key === 'p') setPaused(!paused);
  else if (event.key === '/' && by('filter')) { event.preventDefault(); by('filter').focus(); }
});
setUpCaptures({onRefused: (error) => askForToken(error.message), refreshSoon});
takeTokenOfAddress();
addEventListener('hashchange', route);
route();
