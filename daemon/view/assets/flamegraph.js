"use strict";
// Draws a flame graph into an <svg> element: boxes by script, so that a zoom shows what was too
// narrow before. The same in an SVG file of its own and in a page.
//
// data: {title, lines: [text], names: [text], kinds: "0121…" by name, legend: [[kind, text]],
//        nodes: [depth, name, self_ns (, self_ns before), …] outer ones first, is_diff, unit}
// Names come from strangers: they only ever become text nodes and attribute values.
function drawFlameGraph(svg, data) {
  const SVG = "http://www.w3.org/2000/svg", HTML = "http://www.w3.org/1999/xhtml";
  const ROW = 19, PAD = 10, NARROWEST = 0.5, MOST_BOXES = 30000;
  const isAlone = svg === document.documentElement;
  const stride = data.is_diff ? 4 : 3;
  const count = data.nodes.length / stride;
  const sides = data.is_diff ? 2 : 1;
  const depth = new Uint16Array(count), name = new Uint32Array(count), parent = new Int32Array(count);
  const end = new Uint32Array(count);  // the node behind the last one inside
  const total = [], start = [];
  for (let s = 0; s < sides; ++s) {
    total.push(new Float64Array(count));
    start.push(new Float64Array(count));
  }
  readNodes();
  const shortNames = new Array(data.names.length);
  const state = {side: 0, focus: 0, back: [], selected: 0, hits: null, width: 0, charWidth: 7.2};

  function readNodes() {
    const open = [];
    for (let i = 0; i < count; ++i) {
      depth[i] = data.nodes[i * stride];
      name[i] = data.nodes[i * stride + 1];
      for (let s = 0; s < sides; ++s) total[s][i] = data.nodes[i * stride + 2 + s];
      while (open.length > depth[i]) end[open.pop()] = i;
      parent[i] = open.length ? open[open.length - 1] : -1;
      open.push(i);
    }
    while (open.length) end[open.pop()] = count;
    const filled = new Float64Array(count);
    for (let s = 0; s < sides; ++s) {
      for (let i = count - 1; i > 0; --i) total[s][parent[i]] += total[s][i];
      filled.fill(0);
      for (let i = 1; i < count; ++i) {
        const p = parent[i];
        start[s][i] = start[s][p] + filled[p];
        filled[p] += total[s][i];
      }
    }
  }

  // ---- text

  const formats = [0, 1, 2, 3].map(digits => new Intl.NumberFormat("en-US", {
    minimumFractionDigits: digits, maximumFractionDigits: digits}));
  function formatNumber(value, digits) { return formats[digits].format(value); }
  function formatTime(ns) { return formatNumber(ns / 1000, 3) + " " + data.unit; }
  function formatShare(part, whole) {
    return whole > 0 ? formatNumber(100 * part / whole, 2) + " %" : "–";
  }
  function nameOf(i) { return i === 0 ? "all" : data.names[name[i]]; }

  // Without template and call arguments; unchanged where brackets do not match.
  function withoutArguments(text) {
    const plain = text.replace(/^\[GPU\d*_(Kernel|Memcpy|Memset|Graph)\]/, "")
      .replace(/\(anonymous namespace\)::/g, "").replace(/^(void|bool|int) /, "");
    const kept = plain.replace(/operator\(\)/g, "operator\u0001");
    let out = "", open = 0;
    for (const c of kept) {
      if (c === "<" || c === "(") ++open;
      if (open === 0) out += c;
      if (c === ">" || c === ")") --open;
      if (open < 0) return plain;
    }
    out = out.replace(/\u0001/g, "()").trim();
    return open === 0 && out !== "" ? out : plain;
  }
  function fitText(i, width) {
    const room = Math.floor((width - 8) / state.charWidth);
    if (room < 2) return "";
    const full = nameOf(i);
    if (full.length <= room) return full;
    if (shortNames[name[i]] === undefined) shortNames[name[i]] = withoutArguments(full);
    const brief = i === 0 ? full : shortNames[name[i]];
    // Of Python the file tells one "forward" from another.
    if (i > 0 && data.kinds[name[i]] === "1" && room > brief.length + 4) return full.slice(0, room - 1) + "…";
    if (brief.length <= room) return brief;
    const parts = brief.split("::");
    for (const kept of [2, 1]) {
      const last = parts.slice(-kept).join("::");
      if (parts.length > kept && last.length >= 3 && last.length <= room) return last;
    }
    return room < 4 ? "" : brief.slice(0, room - 1) + "…";
  }

  function change(i) {
    const after = total[0][i], before = total[1][i];
    const most = Math.max(after, before);
    return most > 0 ? (after - before) / most : 0;
  }
  function describe(i) {
    const t = total[state.side];
    const lines = [];
    if (data.is_diff) {
      const before = total[1][i], after = total[0][i], delta = after - before;
      lines.push(formatTime(before) + " before, " + formatTime(after) + " after: " +
                 (delta < 0 ? "−" : "+") + formatTime(Math.abs(delta)) +
                 (before > 0 ? " (" + (delta < 0 ? "−" : "+") +
                   formatNumber(Math.abs(100 * delta / before), 1) + " %)" : " (new)"));
    } else {
      lines.push(formatTime(t[i]));
    }
    lines.push(formatShare(t[i], t[0]) + " of all" +
               (i > 0 ? ", " + formatShare(t[i], t[parent[i]]) + " of parent" : ""));
    return lines;
  }

  // ---- elements

  function make(kind, attributes, ...children) {
    const element = document.createElementNS(HTML, kind);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    element.append(...children);
    return element;
  }
  function makeSvg(kind, attributes) {
    const element = document.createElementNS(SVG, kind);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    return element;
  }

  const search = make("input", {type: "search", class: "fg-search", placeholder: "Search (regular expression)",
                                "aria-label": "Search frames by regular expression", spellcheck: "false"});
  const zoomOut = make("button", {type: "button", class: "fg-zoom", title: "Escape"}, "Zoom out");
  const reset = make("button", {type: "button", class: "fg-reset", title: "Home"}, "Show all");
  const other = make("button", {type: "button", class: "fg-side"});
  const matched = make("span", {class: "fg-matched", role: "status"});
  const note = make("span", {class: "fg-note"});
  const header = buildHeader();
  const headerBox = makeSvg("foreignObject", {x: 0, y: 0, width: 100, height: 10});
  headerBox.append(header);
  const boxes = makeSvg("g", {role: "tree", "aria-label": data.title, class: "fg-boxes"});
  const tip = make("div", {class: "fg-tip"});
  const tipBox = makeSvg("foreignObject", {class: "fg-tip-box", visibility: "hidden", x: 0, y: 0,
                                           width: 10, height: 10});
  tipBox.append(tip);
  for (const old of svg.querySelectorAll(".fg-static")) old.remove();
  svg.append(headerBox, boxes, tipBox);

  function buildHeader() {
    const legend = make("div", {class: "fg-legend"});
    for (const [kind, text] of data.legend) {
      legend.append(make("span", {class: "fg-key"}, make("span", {class: "fg-swatch " + kind}), text));
    }
    const tools = make("div", {class: "fg-tools"}, search, zoomOut, reset);
    if (data.is_diff) tools.append(other);
    tools.append(matched);
    const top = make("div", {class: "fg-header"});
    if (data.title && isAlone) top.append(make("h1", {}, data.title));
    for (const line of data.lines) top.append(make("p", {}, line));
    top.append(tools, legend, make("p", {class: "fg-note-line"}, note));
    return top;
  }

  // ---- drawing

  function classOf(i) {
    if (i === 0) return "k0";
    if (data.is_diff) return "d" + Math.round(change(i) * 4 + 4);
    return "k" + data.kinds[name[i]];
  }
  function placeOf(i) {
    const t = total[state.side], x0 = start[state.side], f = state.focus;
    if (i <= f && end[i] > f) return {x: 0, width: state.width};  // it, or around it
    const scale = state.width / t[f];
    return {x: (x0[i] - x0[f]) * scale, width: t[i] * scale};
  }

  function draw() {
    state.width = Math.max(200, (isAlone ? document.documentElement.clientWidth || window.innerWidth
                                         : svg.parentNode.clientWidth) - 2 * PAD);
    svg.setAttribute("width", state.width + 2 * PAD);
    svg.removeAttribute("viewBox");
    headerBox.setAttribute("width", state.width + 2 * PAD);
    measureText();
    const zoomed = state.focus !== 0;
    zoomOut.disabled = reset.disabled = !zoomed;
    if (data.is_diff) other.textContent = state.side === 0 ? "Widths: after" : "Widths: before";

    const around = [];
    for (let i = parent[state.focus]; i >= 0; i = parent[i]) around.unshift(i);
    const fragment = document.createDocumentFragment();
    for (const i of around) fragment.append(makeBox(i, "fg-around"));
    let deepest = depth[state.focus], hidden = 0, drawn = 0;
    for (let i = state.focus; i < end[state.focus];) {
      const {width} = placeOf(i);
      if (total[state.side][i] > 0 && (width < NARROWEST || drawn >= MOST_BOXES)) hidden += end[i] - i;
      if ((total[state.side][i] === 0 && i !== state.focus) || width < NARROWEST || drawn >= MOST_BOXES) {
        i = end[i];
        continue;
      }
      fragment.append(makeBox(i, ""));
      deepest = Math.max(deepest, depth[i]);
      ++drawn;
      ++i;
    }
    boxes.replaceChildren(fragment);
    note.textContent = hidden === 0 ? ""
      : formatNumber(hidden, 0) + (hidden === 1 ? " box is" : " boxes are") +
        " too narrow to draw; zooming in shows them.";
    const top = Math.ceil(header.getBoundingClientRect().height);
    headerBox.setAttribute("height", top);
    boxes.setAttribute("transform", "translate(" + PAD + "," + top + ")");
    svg.setAttribute("height", top + (deepest + 1) * ROW + PAD);
    const ground = svg.querySelector(".fg-ground");
    if (ground) ground.setAttribute("height", top + (deepest + 1) * ROW + PAD);
    markSelected();
  }

  function makeBox(i, extra) {
    const {x, width} = placeOf(i);
    const hit = state.hits !== null && i > 0 && state.hits[name[i]];
    const box = makeSvg("g", {
      class: "fg-box " + classOf(i) + (hit ? " fg-hit" : "") + (extra ? " " + extra : ""),
      "data-node": i});
    if (width >= 3) nameBox(box, i);  // thousands are narrower: those when they are selected
    box.append(makeSvg("rect", {x: x.toFixed(2), y: depth[i] * ROW, rx: width > 20 ? 2 : 0,
                                width: Math.max(NARROWEST, width - (width > 5 ? 1 : width > 2 ? 0.4 : 0)).toFixed(2),
                                height: ROW - 1}));
    const text = fitText(i, width);
    if (text) {
      const label = makeSvg("text", {x: (x + 4).toFixed(2), y: depth[i] * ROW + 13.5});
      label.textContent = text;
      box.append(label);
    }
    return box;
  }

  function nameBox(box, i) {
    box.setAttribute("role", "treeitem");
    box.setAttribute("tabindex", "-1");
    box.setAttribute("aria-level", depth[i] + 1);
    box.setAttribute("aria-label", nameOf(i).slice(0, 300) + ", " + describe(i).join(", "));
  }

  function measureText() {
    const probe = makeSvg("text", {class: "fg-probe", visibility: "hidden"});
    probe.textContent = "0123456789".repeat(10);
    svg.append(probe);
    state.charWidth = probe.getComputedTextLength() / 100 || 7.2;
    probe.remove();
  }
  function findBox(i) { return boxes.querySelector('[data-node="' + i + '"]'); }

  // ---- zoom, selection, search

  function zoom(i, keep) {
    if (i === state.focus || total[state.side][i] === 0) return;
    if (!keep) state.back.push(state.focus);
    state.focus = state.selected = i;
    hideTip();
    draw();
    scrollTo(i);
  }
  function goBack() {
    if (state.focus === 0) return false;
    zoom(state.back.length ? state.back.pop() : 0, true);
    return true;
  }
  function showAll() {
    state.back = [];
    zoom(0, true);
  }
  function scrollTo(i) {
    const box = findBox(i);
    if (!box) return;
    const at = box.getBoundingClientRect();
    if (at.top < 0 || at.bottom > window.innerHeight) window.scrollBy(0, at.top - window.innerHeight / 3);
  }
  function markSelected() {
    for (const old of boxes.querySelectorAll(".fg-selected")) {
      old.classList.remove("fg-selected");
      old.setAttribute("tabindex", "-1");
    }
    const box = findBox(state.selected) || findBox(state.focus);
    if (!box) return;
    nameBox(box, +box.dataset.node);
    box.classList.add("fg-selected");
    box.setAttribute("tabindex", "0");
  }
  function select(i) {
    const box = i >= 0 && findBox(i);
    if (!box) return;
    state.selected = i;
    markSelected();
    box.focus({preventScroll: true});
    scrollTo(i);
    const at = box.querySelector("rect").getBoundingClientRect();
    showTip(i, Math.max(at.left, 0) + 20, at.bottom);
  }
  function widest(i) {
    let best = -1;
    for (let c = i + 1; c < end[i]; c = end[c]) {
      if (best < 0 || total[state.side][c] > total[state.side][best]) best = c;
    }
    return best;
  }
  function neighbour(i, step) {
    const row = [...boxes.querySelectorAll(".fg-box")].map(b => +b.dataset.node)
      .filter(n => depth[n] === depth[i]).sort((a, b) => a - b);
    return row[row.indexOf(i) + step];
  }

  function runSearch() {
    matched.classList.remove("fg-bad");
    if (search.value === "") {
      state.hits = null;
      matched.textContent = "";
      draw();
      return;
    }
    let pattern;
    try {
      pattern = new RegExp(search.value, "i");
    } catch (error) {
      matched.textContent = "Not a regular expression: " + error.message;
      matched.classList.add("fg-bad");
      return;
    }
    state.hits = data.names.map(n => pattern.test(n));
    let sum = 0, found = 0;
    for (let i = 1; i < count;) {
      if (state.hits[name[i]]) {  // what is inside is counted with it
        sum += total[state.side][i];
        ++found;
        i = end[i];
      } else {
        ++i;
      }
    }
    matched.textContent = "Matched " + formatShare(sum, total[state.side][0]) + ", " + formatTime(sum) +
      (found === 0 ? ": nothing" : "");
    draw();
  }

  // ---- what is under the pointer

  function showTip(i, x, y) {
    tip.replaceChildren(make("div", {class: "fg-tip-name"}, nameOf(i).slice(0, 600)),
                        ...describe(i).map(line => make("div", {}, line)));
    const at = svg.getBoundingClientRect();
    const room = Math.min(460, state.width);
    tipBox.setAttribute("width", room);
    tipBox.setAttribute("height", 400);
    const size = tip.getBoundingClientRect();
    const left = Math.min(x - at.left + 14, state.width + 2 * PAD - size.width - 4);
    const isLow = y + size.height + 24 > window.innerHeight;
    tipBox.setAttribute("x", Math.max(2, left));
    tipBox.setAttribute("y", Math.max(0, y - at.top + (isLow ? -size.height - 12 : 16)));
    tipBox.setAttribute("height", Math.ceil(size.height) + 4);
    tipBox.setAttribute("visibility", "visible");
  }
  function hideTip() { tipBox.setAttribute("visibility", "hidden"); }
  function nodeAt(event) {
    const box = event.target.closest ? event.target.closest(".fg-box") : null;
    return box && boxes.contains(box) ? +box.dataset.node : -1;
  }

  boxes.addEventListener("mousemove", event => {
    const i = nodeAt(event);
    if (i >= 0) showTip(i, event.clientX, event.clientY); else hideTip();
  });
  boxes.addEventListener("mouseleave", hideTip);
  boxes.addEventListener("click", event => {
    const i = nodeAt(event);
    if (i >= 0) zoom(i, false);
  });
  zoomOut.addEventListener("click", goBack);
  reset.addEventListener("click", showAll);
  other.addEventListener("click", () => {
    state.side = 1 - state.side;
    if (total[state.side][state.focus] === 0) state.focus = state.selected = 0;
    if (state.hits) runSearch(); else draw();
  });
  search.addEventListener("input", runSearch);

  function onKey(event) {
    const inSearch = event.target === search;
    if (event.key === "Escape") {
      if (search.value !== "") {
        search.value = "";
        runSearch();
      } else {
        goBack();
      }
      hideTip();
      event.preventDefault();
      return;
    }
    const isFind = (event.ctrlKey || event.metaKey) && event.key === "f";
    if (isFind || (event.key === "/" && !inSearch)) {
      search.focus();
      search.select();
      event.preventDefault();
      return;
    }
    if (inSearch || event.ctrlKey || event.metaKey || event.altKey) return;
    const now = findBox(state.selected) ? state.selected : state.focus;
    const moves = {
      ArrowDown: () => select(widest(now)), ArrowUp: () => select(parent[now]),
      ArrowLeft: () => select(neighbour(now, -1)), ArrowRight: () => select(neighbour(now, 1)),
      Enter: () => { if (!(event.target instanceof HTMLButtonElement)) zoom(now, false); },
      Backspace: goBack, Home: showAll,
    };
    if (!(event.key in moves)) return;
    if (event.key === "Enter" && event.target instanceof HTMLButtonElement) return;
    event.preventDefault();
    moves[event.key]();
  }
  (isAlone ? window : svg).addEventListener("keydown", onKey);

  let queued = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(queued);
    queued = requestAnimationFrame(draw);
  });
  draw();
}
