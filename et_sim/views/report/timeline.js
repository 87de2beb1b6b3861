// The timeline of the page: nodes as rectangles on a canvas, with zoom, pan, selection and search.
//
// Slices are columns of numbers, sorted by track and start, so that what is visible is found by bisection. Those
// narrower than a pixel share one, in the colour of the longest and as dense as they are: what is drawn is bounded by
// the picture's size. The state is in attributes of #view (data-from, data-to, data-chosen), for tests and scripts.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const source = byId("timeline-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const types = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array };
  const column = Object.fromEntries(Object.entries(data.columns).map(([name, [type, text]]) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return [name, new types[type](bytes.buffer)];
  }));
  const total = column.start.length;
  const endOf = (slice) => column.start[slice] + column.length[slice];

  // ---- words -------------------------------------------------------------------------------------------------
  const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
  const unitOf = (span) => UNITS.find(([, size]) => span >= size) || UNITS[3];
  const plain = (value, decimals) => {
    const text = value.toFixed(decimals);
    return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  };
  const time = (ns) => { const [unit, size] = unitOf(ns); return `${plain(ns / size, 3)} ${unit}`; };
  const tickTime = (ns, step) => {
    const [unit, size] = unitOf(Math.max(ns, step));
    return `${plain(ns / size, Math.max(0, Math.ceil(Math.log10(size / step))))} ${unit}`;
  };
  const size = (bytes) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let at = 0;
    while (bytes >= 1024 && at < 5) { bytes /= 1024; at += 1; }
    return `${plain(bytes, 2)} ${units[at]}`;
  };
  const nameOf = (slice) => column.count[slice] > 1
    ? `${column.count[slice].toLocaleString("en")} short nodes` : data.names[column.name[slice]] || "(no name)";
  const laneOf = ([, lane, row]) => (row ? `${lane} ${row + 1}` : lane);

  // ---- places ------------------------------------------------------------------------------------------------
  const tracks = data.tracks.length;
  const height = tracks <= 40 ? 18 : tracks <= 80 ? 13 : tracks <= 160 ? 9 : 6;
  const tops = [];
  let bottom = 6;
  data.tracks.forEach(([place], track) => {
    if (track && place !== data.tracks[track - 1][0]) bottom += height > 9 ? 9 : 4;
    tops.push(bottom);
    bottom += height + 1;
  });
  bottom += 6;
  const firsts = new Array(tracks + 1).fill(total);
  for (let slice = total - 1; slice >= 0; slice -= 1) firsts[column.track[slice]] = slice;
  for (let track = tracks - 1; track >= 0; track -= 1) firsts[track] = Math.min(firsts[track], firsts[track + 1]);
  const firstFrom = (track, moment) => {  // the first slice of a track that starts then or later
    let low = firsts[track], high = firsts[track + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (column.start[middle] < moment) low = middle + 1; else high = middle;
    }
    return low;
  };
  const firstVisible = (track, moment) => {
    let slice = firstFrom(track, moment);
    while (slice > firsts[track] && (endOf(slice - 1) > moment || !column.length[slice - 1])) slice -= 1;
    return slice;
  };

  // ---- the page ----------------------------------------------------------------------------------------------
  document.documentElement.classList.add("js");
  const view = byId("view");
  view.hidden = false;
  view.innerHTML = `
    <div class="controls">
      <button type="button" data-do="in" title="zoom in (+)">Zoom in</button>
      <button type="button" data-do="out" title="zoom out (-)">Zoom out</button>
      <button type="button" data-do="fit" title="show everything (0)">Everything</button>
      <span class="range" aria-live="polite"></span><span class="gap"></span>
      <label class="range" for="search">find</label><input type="search" id="search" placeholder="name of a node">
    </div>
    <div class="controls kinds" role="group" aria-label="kinds to highlight"></div>
    <div class="canvases">
      <canvas id="overview" aria-hidden="true"></canvas><canvas id="axis" aria-hidden="true"></canvas>
      <div id="body"><canvas id="lanes" tabindex="0" role="application"
        aria-label="Timeline. Left and right move, plus and minus zoom, with shift arrows choose a node."></canvas></div>
      <div id="tip" hidden></div>
    </div>
    <div id="chosen" aria-live="polite"></div>`;
  const canvases = ["overview", "axis", "lanes"].map(byId);
  const [overview, axis, lanes] = canvases;
  const range = view.querySelector("span.range");
  const tip = byId("tip"), body = byId("body"), chosenBox = byId("chosen");
  const HELP = `<p>Choose a node to see its figures. Drag to move, <kbd>Ctrl</kbd> and wheel to zoom, or, with the
    timeline focused: <kbd>←</kbd> <kbd>→</kbd> move, <kbd>+</kbd> <kbd>−</kbd> zoom, <kbd>0</kbd> everything,
    <kbd>Shift</kbd> and arrows choose the next node, <kbd>F</kbd> zooms to it, <kbd>Esc</kbd> lets it go.</p>`;

  let from = data.from, to = data.to, chosen = -1, wanted = null, onPath = false, pressed = new Set(), gutter = 118, width = 0;
  let colours = {};
  const partners = new Map();  // slice -> the pairs and chains that it is in
  data.arrows.forEach((members) => members.forEach((slice) => {
    partners.set(slice, [...(partners.get(slice) || []), members]);
  }));

  const scale = () => (width - gutter) / (to - from);
  const xOf = (moment) => gutter + (moment - from) * scale();
  const momentAt = (x) => from + (x - gutter) / scale();
  const lightness = (colour) => {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return 0.299 * red + 0.587 * green + 0.114 * blue;
  };
  const isDark = window.matchMedia("(prefers-color-scheme: dark)");
  let fills = [], inks = [];
  const isMeant = (slice) => (!pressed.size || pressed.has(column.kind[slice]))
    && (!wanted || wanted[column.name[slice]]) && (!onPath || column.critical[slice]);

  // ---- drawing -----------------------------------------------------------------------------------------------
  const prepare = (canvas, tall) => {
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = `${tall}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(tall * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, tall);
    return pen;
  };
  const drawTrack = (pen, track, top, tall, left, first, last, perNs, withNames) => {
    const until = firsts[track + 1], right = left + (last - first) * perNs;
    let pixel = -1, busy = 0, longest = -1, meant = false, fill = "", alpha = -1;
    const paint = (colour, density, x, w) => {  // setting a pen's colour costs more than most rectangles
      if (alpha !== density) pen.globalAlpha = alpha = density;
      if (fill !== colour) pen.fillStyle = fill = colour;
      pen.fillRect(x, top, w, tall);
    };
    const flush = () => {
      if (longest < 0) return;
      const density = Math.max(0.35, Math.min(1, Math.round(busy * 10) / 10)) * (meant ? 1 : 0.18);
      paint(fills[column.kind[longest]], density, pixel, 1);
      longest = -1; busy = 0; meant = false;
    };
    for (let slice = firstVisible(track, first); slice < until && column.start[slice] < last; slice += 1) {
      const begin = left + (column.start[slice] - first) * perNs, wide = column.length[slice] * perNs;
      if (wide < 1) {
        if (begin < left) continue;
        if (Math.floor(begin) !== pixel) { flush(); pixel = Math.floor(begin); }
        busy += Math.max(column.busy[slice] * perNs, 0.2);
        if (longest < 0 || column.length[slice] > column.length[longest]) longest = slice;
        meant = meant || isMeant(slice);
        continue;
      }
      flush();
      const x = Math.max(begin, left), w = Math.min(begin + wide, right) - x;
      const share = column.count[slice] > 1 ? 0.4 + 0.6 * column.busy[slice] / column.length[slice] : 1;
      paint(fills[column.kind[slice]], share * (isMeant(slice) ? 1 : 0.18), x, w > 3 ? w - 0.75 : w);
      if (withNames && w > 34) {
        const room = Math.floor((w - 8) / 6.6), name = nameOf(slice);
        pen.fillStyle = fill = inks[column.kind[slice]];
        pen.fillText(name.length > room ? `${name.slice(0, room - 1)}…` : name, x + 4, top + tall / 2 + 0.5);
      }
    }
    flush();
    pen.globalAlpha = 1;
  };
  const drawLanes = () => {
    const pen = prepare(lanes, bottom);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillStyle = colours.line;
    for (const tick of ticks()) pen.fillRect(Math.round(xOf(tick)), 0, 1, bottom);
    data.tracks.forEach((track, at) => {
      if (tops[at] + height < body.scrollTop - 40 || tops[at] > body.scrollTop + body.clientHeight + 40) return;
      pen.fillStyle = colours.track;
      pen.fillRect(gutter, tops[at], width - gutter, height);
      drawTrack(pen, at, tops[at], height, gutter, from, to, scale(), height > 9);
    });
    drawLabels(pen);
    drawArrows(pen);
    if (chosen >= 0) {
      const x = Math.max(xOf(column.start[chosen]), gutter), end = Math.min(xOf(endOf(chosen)), width);
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 2;
      if (end >= gutter && x <= width) pen.strokeRect(x - 1, tops[column.track[chosen]] - 1, Math.max(end - x, 1) + 2, height + 2);
    }
  };
  const drawLabels = (pen) => {
    data.tracks.forEach((track, at) => {
      const isFirst = !at || data.tracks[at - 1][0] !== track[0];
      const middle = tops[at] + height / 2;
      pen.textAlign = "left";
      pen.fillStyle = colours.ink;
      if (isFirst && (height > 9 || at % 4 === 0)) pen.fillText(data.ranks[track[0]], 8, height > 9 ? middle : tops[at] + 5);
      pen.fillStyle = colours.muted;
      pen.textAlign = "right";
      if (height > 9 && gutter > 100) pen.fillText(short(laneOf(track)), gutter - 6, middle);
    });
    pen.textAlign = "left";
  };
  const short = (lane) => ({ communication: "comm.", collective: "coll.", "communication 2": "comm. 2" })[lane] || lane;
  const drawArrows = (pen) => {
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 1.25;
    pen.setLineDash([4, 3]);
    const middle = (slice) => tops[column.track[slice]] + height / 2;
    const isMessage = (members) => members.length === 2 && data.kinds[column.kind[members[0]]].name === "send";
    for (const members of partners.get(chosen) || []) {
      pen.beginPath();
      members.forEach((slice, at) => {
        const arrives = at && isMessage(members);
        const x = Math.min(Math.max(xOf(arrives ? endOf(slice) : column.start[slice]), gutter), width);
        if (at) pen.lineTo(x, middle(slice)); else pen.moveTo(x, middle(slice));
      });
      pen.stroke();
    }
    pen.setLineDash([]);
  };
  const step = () => {
    const least = (to - from) / Math.max(2, (width - gutter) / 110), power = 10 ** Math.floor(Math.log10(least));
    return Math.max(1, [1, 2, 5, 10].map((digit) => digit * power).find((one) => one >= least));
  };
  const ticks = () => {
    const found = [], apart = step();
    for (let tick = Math.ceil(from / apart) * apart; tick <= to; tick += apart) found.push(tick);
    return found;
  };
  const drawAxis = () => {
    const pen = prepare(axis, 22);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const apart = step();
    for (const tick of ticks()) {
      const x = Math.round(xOf(tick)), label = tickTime(tick, apart), room = pen.measureText(label).width;
      pen.fillStyle = colours.line;
      pen.fillRect(x, 16, 1, 6);
      pen.fillStyle = colours.muted;
      pen.fillText(label, Math.min(Math.max(x - room / 2, gutter), width - room - 4), 10);
    }
  };
  const whole = document.createElement("canvas");  // the overview's nodes, which seldom change
  let wholeKey = "";
  const drawWhole = (tall, perNs) => {
    const key = [width, isDark.matches, [...pressed], onPath, byId("search").value, window.devicePixelRatio].join();
    if (key === wholeKey) return;
    wholeKey = key;
    const pen = prepare(whole, tall), each = (tall - 6) / Math.max(tracks, 1);
    data.tracks.forEach((track, at) => {
      drawTrack(pen, at, 3 + at * each, Math.max(each - (each > 3 ? 1 : 0), 0.5), gutter, data.from, data.to, perNs, false);
    });
  };
  const drawOverview = () => {
    const tall = 46, perNs = (width - gutter) / (data.to - data.from);
    drawWhole(tall, perNs);
    const pen = prepare(overview, tall);
    pen.drawImage(whole, 0, 0, width, tall);
    const left = gutter + (from - data.from) * perNs, right = gutter + (to - data.from) * perNs;
    pen.fillStyle = colours.shade;
    pen.fillRect(gutter, 0, left - gutter, tall);
    pen.fillRect(right, 0, width - right, tall);
    pen.strokeStyle = colours.ink;
    pen.strokeRect(left + 0.5, 0.5, Math.max(right - left - 1, 2), tall - 1);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillStyle = colours.muted;
    pen.fillText(gutter > 100 ? "everything" : "all", 8, tall / 2);
  };
  let waiting = false;
  const draw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      width = lanes.clientWidth || byId("body").clientWidth;
      if (!width) return;
      gutter = width < 560 ? 58 : 118;
      const style = getComputedStyle(document.documentElement);
      colours = Object.fromEntries(["ink", "muted", "line", "track", "shade"].map((n) => [n, style.getPropertyValue(`--${n}`).trim()]));
      fills = data.kinds.map((kind) => (isDark.matches ? kind.dark : kind.colour));
      inks = fills.map((colour) => (lightness(colour) > 125 ? "#14202b" : "#ffffff"));
      view.querySelectorAll(".kinds button").forEach((button) => {
        if (button.dataset.number) button.firstChild.style.background = fills[button.dataset.number];
      });
      drawLanes();
      drawAxis();
      drawOverview();
      range.textContent = `${time(Math.max(from, 0))} to ${time(to)}: ${time(to - from)}`;
      Object.assign(view.dataset, { from, to, chosen, drawn: "yes" });
    });
  };

  // ---- moving ------------------------------------------------------------------------------------------------
  const show = (first, last) => {
    const whole = data.to - data.from, span = Math.min(Math.max(last - first, Math.min(10, whole)), whole);
    from = Math.min(Math.max(first, data.from), data.to - span);
    to = from + span;
    draw();
  };
  const zoom = (factor, around = (from + to) / 2) => show(around - (around - from) * factor, around + (to - around) * factor);
  const move = (part) => show(from + (to - from) * part, to + (to - from) * part);
  const reveal = (slice) => {
    const span = to - from, begin = column.start[slice], end = endOf(slice);
    if (begin < from || end > to) show((begin + end - span) / 2, (begin + end + span) / 2);
    const top = tops[column.track[slice]];
    if (top < body.scrollTop) body.scrollTop = top - 8;
    if (top + height > body.scrollTop + body.clientHeight) body.scrollTop = top + height + 8 - body.clientHeight;
  };

  // ---- choosing ----------------------------------------------------------------------------------------------
  const facts = (slice) => {
    const track = data.tracks[column.track[slice]], length = column.length[slice], bytes = column.bytes[slice];
    const found = [["where", `${data.ranks[track[0]]}, ${laneOf(track)}`], ["kind", data.kinds[column.kind[slice]].name]];
    found.push(["begins", `${time(column.start[slice])} (${column.start[slice].toLocaleString("en")} ns)`]);
    found.push(["ends", `${time(endOf(slice))} (${endOf(slice).toLocaleString("en")} ns)`], ["takes", time(length)]);
    if (column.count[slice] > 1) {
      found.push(["busy", `${plain(100 * column.busy[slice] / Math.max(length, 1), 1)} %`]);
      return found;
    }
    if (column.waited[slice]) found.push(["ready, but waited", time(column.waited[slice])]);
    if (data.groups[column.group[slice]]) found.push(["group", data.groups[column.group[slice]]]);
    if (bytes) found.push(["bytes", size(bytes)]);
    if (bytes && length) found.push(["bandwidth", `${size(bytes * 1e9 / length)}/s`]);
    const others = (partners.get(slice) || []).flat().filter((one) => one !== slice);
    const places = [...new Set(others.map((one) => data.tracks[column.track[one]][0]))].sort((a, b) => a - b);
    const named = places.map((place) => data.ranks[place].slice(5));
    if (column.critical[slice]) found.push(["critical path", "on it"]);
    if (named.length) found.push(["with ranks", named.length > 12 ? `${named.slice(0, 12).join(", ")}, …` : named.join(", ")]);
    found.push(["node", column.node[slice]]);
    return found;
  };
  const choose = (slice, toView = true) => {
    chosen = slice;
    chosenBox.innerHTML = slice < 0 ? HELP : "";
    if (slice >= 0) {
      const heading = document.createElement("h3"), list = document.createElement("dl");
      heading.textContent = nameOf(slice);
      for (const [name, value] of facts(slice)) {
        const pair = document.createElement("div");
        pair.append(Object.assign(document.createElement("dt"), { textContent: name }));
        pair.append(Object.assign(document.createElement("dd"), { textContent: value }));
        list.append(pair);
      }
      chosenBox.append(heading, list);
      if (toView) reveal(slice);
    }
    draw();
  };
  const sliceAt = (track, moment, tolerance) => {
    let best = -1, least = Infinity;
    for (let slice = firstVisible(track, moment - tolerance); slice < firsts[track + 1]; slice += 1) {
      if (column.start[slice] > moment + tolerance) break;
      const apart = Math.max(column.start[slice] - moment, moment - endOf(slice), 0);
      if (apart <= tolerance && (apart < least || !column.length[slice])) { best = slice; least = apart; }
    }
    return best;
  };
  const sliceUnder = (event) => {
    const box = lanes.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const track = tops.findIndex((top) => y >= top && y <= top + height);
    return track < 0 || x < gutter ? -1 : sliceAt(track, momentAt(x), 3 / scale());
  };
  const chooseBeside = (sideways, down) => {
    if (chosen < 0) {
      for (let track = 0; track < tracks; track += 1) {
        const slice = firstVisible(track, from);
        if (slice < firsts[track + 1] && column.start[slice] < to) { choose(slice); return; }
      }
      return;
    }
    const track = column.track[chosen];
    if (sideways) {
      const next = chosen + sideways;
      if (next >= firsts[track] && next < firsts[track + 1]) choose(next);
      return;
    }
    for (let other = track + down; other >= 0 && other < tracks; other += down) {
      const moment = (column.start[chosen] + endOf(chosen)) / 2, slice = sliceAt(other, moment, to - from);
      if (slice >= 0) { choose(slice); return; }
    }
  };

  // ---- hands -------------------------------------------------------------------------------------------------
  const actions = { in: () => zoom(1 / 1.6), out: () => zoom(1.6), fit: () => show(data.from, data.to) };
  view.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-do]");
    if (button) actions[button.dataset.do]();
  });
  const keys = {
    "+": actions.in, "=": actions.in, "-": actions.out, 0: actions.fit, Home: actions.fit,
    ArrowLeft: (shift) => (shift ? chooseBeside(-1, 0) : move(-0.15)),
    ArrowRight: (shift) => (shift ? chooseBeside(1, 0) : move(0.15)),
    ArrowUp: (shift) => (shift ? chooseBeside(0, -1) : (body.scrollTop -= 60)),
    ArrowDown: (shift) => (shift ? chooseBeside(0, 1) : (body.scrollTop += 60)),
    Escape: () => choose(-1),
    f: () => { if (chosen >= 0) { const pad = Math.max(column.length[chosen], 10); show(column.start[chosen] - pad, endOf(chosen) + pad); } },
  };
  lanes.addEventListener("keydown", (event) => {
    const action = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action(event.shiftKey);
  });
  lanes.addEventListener("wheel", (event) => {
    const box = lanes.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.0025), momentAt(Math.max(event.clientX - box.left, gutter)));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      show(from + event.deltaX / scale(), to + event.deltaX / scale());
    }
  }, { passive: false });
  let drag = null;
  lanes.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, from, to, moved: false };
    lanes.setPointerCapture(event.pointerId);
  });
  lanes.addEventListener("pointermove", (event) => {
    if (drag) {
      const way = event.clientX - drag.x;
      if (Math.abs(way) > 3) { drag.moved = true; lanes.classList.add("dragging"); }
      if (drag.moved) show(drag.from - way / scale(), drag.to - way / scale());
      return;
    }
    hover(event);
  });
  lanes.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) choose(sliceUnder(event), false);
    drag = null;
    lanes.classList.remove("dragging");
  });
  lanes.addEventListener("pointercancel", () => { drag = null; });
  lanes.addEventListener("pointerleave", () => { tip.hidden = true; });
  lanes.addEventListener("dblclick", (event) => zoom(0.4, momentAt(event.clientX - lanes.getBoundingClientRect().left)));
  const hover = (event) => {
    const slice = sliceUnder(event);
    tip.hidden = slice < 0;
    if (slice < 0) return;
    tip.textContent = `${nameOf(slice)}: ${time(column.length[slice])}, from ${time(column.start[slice])}`;
    const box = view.querySelector(".canvases").getBoundingClientRect(), x = event.clientX - box.left;
    tip.style.left = `${Math.max(4, Math.min(x + 14, box.width - tip.offsetWidth - 6))}px`;
    tip.style.top = `${Math.max(2, Math.min(event.clientY - box.top + 16, box.height - tip.offsetHeight - 4))}px`;
  };
  const centre = (event) => {
    const box = overview.getBoundingClientRect(), span = to - from;
    const middle = data.from + (event.clientX - box.left - gutter) / (width - gutter) * (data.to - data.from);
    show(middle - span / 2, middle + span / 2);
  };
  overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); centre(event); });
  overview.addEventListener("pointermove", (event) => { if (event.buttons) centre(event); });

  const used = new Set(column.kind);
  const kindBox = view.querySelector(".kinds");
  data.kinds.forEach((kind, at) => {
    if (!used.has(at)) return;
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: kind.name });
    button.dataset.number = at;
    button.prepend(document.createElement("i"));
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      if (!pressed.delete(at)) pressed.add(at);
      button.setAttribute("aria-pressed", String(pressed.has(at)));
      draw();
    });
    kindBox.append(button);
  });
  if (column.critical.some((one) => one)) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "critical path" });
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      onPath = !onPath;
      button.setAttribute("aria-pressed", String(onPath));
      draw();
    });
    kindBox.append(button);
  }
  byId("search").addEventListener("input", (event) => {
    const text = event.target.value.trim().toLowerCase();
    wanted = text ? data.names.map((name) => name.toLowerCase().includes(text)) : null;
    draw();
  });
  byId("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !wanted) return;
    for (let past = 1; past <= total; past += 1) {
      const slice = (chosen + past) % total;
      if (isMeant(slice)) { choose(slice); return; }
    }
  });
  body.addEventListener("scroll", draw);
  new ResizeObserver(draw).observe(body);
  isDark.addEventListener("change", draw);
  choose(-1);
})();
