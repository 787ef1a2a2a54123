
// ---- tables

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const isNumber = head.classList.contains("n");
      const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : isNumber;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const valueOf = row => isNumber ? +row.cells[column].dataset.v : row.cells[column].textContent;
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const x = valueOf(a), y = valueOf(b);
        return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
      });
      table.tBodies[0].append(...rows);
    });
  });
}

// ---- timeline

function drawTimeline(place, data) {
  const ROW = 20, LANE = 16, GAP = 4, AXIS = 24, NONE = 0xffffffff;
  const rows = data.rows.map(readRow);
  const view = {from: 0, to: data.span_ns};
  let labelWidth = 170, width = 800, hover = null, colours = {};

  function readRow(row) {
    const bytes = Uint8Array.from(atob(row.items), c => c.charCodeAt(0)), n = row.count;
    const words = k => new Uint32Array(bytes.buffer, 4 * n * k, n);
    const read = {label: row.label, isHost: row.is_host, lanes: row.lanes, count: n, start: words(0),
                  length: words(1), name: words(2), launch: words(3),
                  place: new Uint16Array(bytes.buffer, 16 * n, n),
                  pieces: new Uint16Array(bytes.buffer, 18 * n, n), laneBegin: [0], longest: []};
    // Items are by lane, then start; the longest tells how far before a time one may begin that lasts until it.
    for (let lane = 0, i = 0; lane < row.lanes; ++lane) {
      let longest = 0;
      while (i < n && (!row.is_host || read.place[i] === lane)) longest = Math.max(longest, read.length[i++]);
      read.laneBegin.push(i);
      read.longest.push(longest);
    }
    return read;
  }

  const make = (kind, attributes, ...children) => {
    const element = document.createElement(kind);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    element.append(...children);
    return element;
  };
  const zoomIn = make("button", {type: "button", title: "+"}, "Zoom in");
  const zoomOut = make("button", {type: "button", title: "−"}, "Zoom out");
  const reset = make("button", {type: "button", title: "Home"}, "Show all");
  const range = make("span", {class: "tl-range", role: "status"});
  const canvas = make("canvas", {tabindex: "0", role: "img", class: "tl-canvas",
                                 "aria-label": "Timeline: rows of GPU streams, then of host threads"});
  const box = make("div", {class: "tl-box"}, canvas);
  const tip = make("div", {class: "tl-tip", hidden: ""});
  const notes = [];
  if (data.merge_ns > 0) {
    notes.push("Neighbours within " + formatSpan(data.merge_ns) + " are drawn as one piece: there are too many to keep each.");
  }
  if (data.left_out > 0) notes.push(data.left_out + " rows with the least time are left out.");
  place.append(
    make("div", {class: "tl-tools"}, zoomIn, zoomOut, reset, range, ...[
      ["k4", "kernels"], ["k5", "copies and memsets"], ["k2", "probed calls"], ["k3", "calls of CUDA libraries"],
      ["k6", "waits for a GPU"]].map(([kind, text]) =>
      make("span", {class: "key"}, make("span", {class: "swatch " + kind}), text))),
    box, tip,
    make("p", {class: "quiet"}, "Click into it, then the wheel zooms (Ctrl and the wheel always do); drag to move. " +
      "Keys: + and −, ← and →, Home. " + notes.join(" ")));
  const context = canvas.getContext("2d");

  function formatSpan(ns) {
    if (ns === 0) return "0";
    if (ns >= 1e9) return (ns / 1e9).toFixed(3) + " s";
    if (ns >= 1e6) return (ns / 1e6).toFixed(3) + " ms";
    return (ns / 1e3).toFixed(3) + " µs";
  }
  function formatAt(ns) { return formatSpan(Math.abs(ns)).replace(/^/, ns < 0 ? "−" : ""); }

  function readColours() {
    const style = getComputedStyle(place);
    colours = {};
    for (const key of ["ink", "muted", "line", "paper", "band", "accent", "k0", "k1", "k2", "k3", "k4", "k5", "k6"]) {
      colours[key] = style.getPropertyValue("--" + key).trim();
    }
  }
  function heightOf(row) { return row.isHost ? row.lanes * LANE + GAP : ROW + GAP; }
  function xOf(ns) { return labelWidth + (ns - view.from) / (view.to - view.from) * (width - labelWidth); }
  function nsAt(x) { return view.from + (x - labelWidth) / (width - labelWidth) * (view.to - view.from); }

  // The first item of a lane that may reach `tick`.
  function firstFrom(row, lane, tick) {
    let low = row.laneBegin[lane], high = row.laneBegin[lane + 1];
    const wanted = tick - row.longest[lane];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.start[middle] < wanted) low = middle + 1; else high = middle;
    }
    return low;
  }

  function drawLane(row, lane, y, height) {
    const scale = (width - labelWidth) / (view.to - view.from) * data.tick_ns;
    const origin = labelWidth - view.from / data.tick_ns * scale;
    const last = view.to / data.tick_ns;
    let edge = -1, edgeKind = "";
    for (let i = firstFrom(row, lane, view.from / data.tick_ns); i < row.laneBegin[lane + 1]; ++i) {
      if (row.start[i] > last) break;
      let x = origin + row.start[i] * scale, w = row.length[i] * scale;
      if (x + w < labelWidth) continue;
      const kind = data.kinds[row.name[i]];
      if (w < 1) {  // of many pieces in one pixel one is drawn
        const pixel = Math.floor(x);
        if (pixel === edge && kind === edgeKind) continue;
        edge = pixel;
        edgeKind = kind;
        x = pixel;
        w = 1;
      }
      if (x < labelWidth) {
        w -= labelWidth - x;
        x = labelWidth;
      }
      w = Math.min(w, width - x);
      context.globalAlpha = 0.7 + (row.name[i] * 2654435761 >>> 0) % 4 * 0.1;
      context.fillStyle = colours["k" + kind];
      context.fillRect(x, y, w > 3 ? w - 0.5 : w, height);
      if (w > 40) {
        context.globalAlpha = 1;
        context.fillStyle = colours.ink;
        const room = Math.floor((w - 8) / 6.3);
        const name = data.names[row.name[i]].replace(/^\[GPU\d*_\w+\]/, "").replace(/^void /, "");
        context.fillText(name.length <= room ? name : name.slice(0, room - 1) + "…", x + 4, y + height / 2);
      }
    }
    context.globalAlpha = 1;
  }

  function drawAxis(height) {
    const span = view.to - view.from;
    let step = Math.pow(10, Math.floor(Math.log10(span / Math.max(2, (width - labelWidth) / 110))));
    while ((width - labelWidth) * step / span < 90) step *= step.toString()[0] === "2" ? 2.5 : 2;
    context.fillStyle = colours.muted;
    context.strokeStyle = colours.line;
    const zero = data.begin_ns;
    for (let at = Math.ceil((view.from - zero) / step) * step; at <= view.to - zero; at += step) {
      const x = Math.round(xOf(at + zero)) + 0.5;
      context.beginPath();
      context.moveTo(x, AXIS - 6);
      context.lineTo(x, height);
      context.stroke();
      const unit = span >= 2e9 ? [1e9, "s"] : span >= 2e6 ? [1e6, "ms"] : [1e3, "µs"];
      const digits = Math.max(0, Math.ceil(Math.log10(unit[0] / step) - 1e-9));
      const label = (at / unit[0]).toLocaleString("en-US", {minimumFractionDigits: Math.min(digits, 3)});
      context.fillText(label + " " + unit[1], x + 4, AXIS / 2);
    }
  }

  function draw() {
    width = Math.max(240, place.clientWidth - 2);
    labelWidth = width < 600 ? 96 : 190;
    const height = AXIS + rows.reduce((sum, row) => sum + heightOf(row), 0) + 2;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = width + "px";
      canvas.style.height = height + "px";
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.textBaseline = "middle";
    context.font = "11px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
    let y = AXIS;
    rows.forEach((row, index) => {
      if (index % 2 === 0) {
        context.fillStyle = colours.band;
        context.fillRect(0, y, width, heightOf(row));
      }
      row.y = y;
      y += heightOf(row);
    });
    drawAxis(height);
    for (const row of rows) {
      const lane = row.isHost ? LANE : ROW;
      for (let l = 0; l < row.lanes; ++l) drawLane(row, l, row.y + GAP / 2 + l * lane, lane - 1);
      context.fillStyle = colours.ink;
      const room = Math.floor((labelWidth - 12) / 6.7);
      context.fillText(row.label.length <= room ? row.label : row.label.slice(0, room - 1) + "…", 6,
                       row.y + GAP / 2 + lane / 2);
    }
    drawLink();
    range.textContent = formatAt(view.from - data.begin_ns) + " to " + formatAt(view.to - data.begin_ns) +
                        ", " + formatSpan(view.to - view.from);
  }

  // From the launch call of the piece under the pointer to the piece.
  function drawLink() {
    if (!hover || hover.row.isHost) return;
    const launch = hover.row.launch[hover.i], thread = rows[hover.row.place[hover.i]];
    if (launch === NONE || !thread) return;
    const x0 = xOf(launch * data.tick_ns), x1 = xOf(hover.row.start[hover.i] * data.tick_ns);
    const y0 = thread.y + GAP, y1 = hover.row.y + ROW;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
    context.stroke();
    context.beginPath();
    context.arc(x0, y0, 3, 0, 7);
    context.stroke();
    context.lineWidth = 1;
  }

  function itemAt(x, y) {
    if (x < labelWidth) return null;
    const row = rows.find(r => y >= r.y && y < r.y + heightOf(r));
    if (!row) return null;
    const lane = row.isHost ? Math.min(row.lanes - 1, Math.max(0, Math.floor((y - row.y - GAP / 2) / LANE))) : 0;
    const tick = nsAt(x) / data.tick_ns, slack = (nsAt(x + 2) - nsAt(x)) / data.tick_ns;
    let best = null, bestGap = slack;
    for (let i = firstFrom(row, lane, tick - slack); i < row.laneBegin[lane + 1] && row.start[i] <= tick + slack; ++i) {
      const gap = Math.max(0, row.start[i] - tick, tick - row.start[i] - row.length[i]);
      if (gap <= bestGap) {
        best = {row, i};
        bestGap = gap;
      }
    }
    return best;
  }

  function showTip(event) {
    const {row, i} = hover;
    const start = row.start[i] * data.tick_ns - data.begin_ns;
    const lines = [formatSpan(row.length[i] * data.tick_ns) + " from " + formatAt(start)];
    if (row.pieces[i] > 1) lines[0] = row.pieces[i] + " pieces within " + lines[0] + "; the longest is above";
    if (!row.isHost && row.launch[i] !== NONE) {
      const thread = rows[row.place[i]];
      lines.push("launched " + formatSpan((row.start[i] - row.launch[i]) * data.tick_ns) + " before" +
                 (thread ? " by " + thread.label : ""));
    }
    tip.replaceChildren(make("div", {class: "tl-name"}, data.names[row.name[i]].slice(0, 600)),
                        ...lines.map(line => make("div", {}, line)));
    tip.hidden = false;
    const at = place.getBoundingClientRect(), size = tip.getBoundingClientRect();
    tip.style.left = Math.max(0, Math.min(event.clientX - at.left + 14, at.width - size.width)) + "px";
    const isLow = event.clientY + size.height + 30 > window.innerHeight;
    tip.style.top = event.clientY - at.top + (isLow ? -size.height - 12 : 18) + "px";
  }

  function setView(from, to) {
    const span = Math.min(data.span_ns, Math.max(to - from, 20 * data.tick_ns));
    const middle = (from + to) / 2;
    view.from = Math.min(Math.max(0, middle - span / 2), data.span_ns - span);
    view.to = view.from + span;
    queueDraw();
  }
  function zoomAt(ns, factor) { setView(ns - (ns - view.from) * factor, ns + (view.to - ns) * factor); }
  function zoomMiddle(factor) { zoomAt((view.from + view.to) / 2, factor); }
  function move(part) { setView(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from)); }

  let queued = 0;
  function queueDraw() {
    cancelAnimationFrame(queued);
    queued = requestAnimationFrame(draw);
  }

  let drag = null;
  canvas.addEventListener("pointerdown", event => {
    drag = {x: event.clientX, from: view.from, to: view.to};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointermove", event => {
    const at = canvas.getBoundingClientRect();
    if (drag) {
      const by = (drag.x - event.clientX) / (width - labelWidth) * (drag.to - drag.from);
      setView(drag.from + by, drag.to + by);
      return;
    }
    const found = itemAt(event.clientX - at.left, event.clientY - at.top);
    const changed = (found && found.i) !== (hover && hover.i) || (found && found.row) !== (hover && hover.row);
    hover = found;
    if (found) showTip(event); else tip.hidden = true;
    if (changed) queueDraw();
  });
  canvas.addEventListener("pointerleave", () => {
    hover = null;
    tip.hidden = true;
    queueDraw();
  });
  canvas.addEventListener("dblclick", event => {
    const at = canvas.getBoundingClientRect(), found = itemAt(event.clientX - at.left, event.clientY - at.top);
    if (!found) return;
    const from = found.row.start[found.i] * data.tick_ns, length = found.row.length[found.i] * data.tick_ns;
    setView(from - length, from + 2 * length);
  });
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const at = canvas.getBoundingClientRect();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX / 1000);
    else zoomAt(nsAt(event.clientX - at.left), Math.pow(1.0015, event.deltaY));
  }, {passive: false});
  canvas.addEventListener("keydown", event => {
    const keys = {"+": () => zoomMiddle(0.5), "=": () => zoomMiddle(0.5), w: () => zoomMiddle(0.5),
                  "-": () => zoomMiddle(2), s: () => zoomMiddle(2), ArrowLeft: () => move(-0.2), a: () => move(-0.2),
                  ArrowRight: () => move(0.2), d: () => move(0.2), Home: () => setView(0, data.span_ns)};
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  zoomIn.addEventListener("click", () => zoomMiddle(0.5));
  zoomOut.addEventListener("click", () => zoomMiddle(2));
  reset.addEventListener("click", () => setView(0, data.span_ns));
  window.addEventListener("resize", queueDraw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    queueDraw();
  });
  readColours();
  setView(data.begin_ns, data.begin_ns + data.window_ns);
  return {show: (at, length) => {
    setView(data.begin_ns + at - length, data.begin_ns + at + 2 * length);
    place.scrollIntoView({block: "center"});
  }};
}

// ---- the page

for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
drawFlameGraph(document.getElementById("flamegraph"),
               JSON.parse(document.getElementById("flamegraph-data").textContent));
const timeline = drawTimeline(document.getElementById("timeline"),
                              JSON.parse(document.getElementById("timeline-data").textContent));
for (const row of document.querySelectorAll("tr[data-at]")) {
  row.tabIndex = 0;
  row.addEventListener("click", () => timeline.show(+row.dataset.at, +row.dataset.for));
  row.addEventListener("keydown", event => { if (event.key === "Enter") row.click(); });
}
