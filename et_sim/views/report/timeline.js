// The timeline of the page: nodes as rectangles on a canvas, with zoom, pan, selection and search.
//
// Slices are columns of numbers, sorted by track and start, so that what is visible is found by bisection. Those
// narrower than a pixel share one, in the colour of the kind that fills most of it and as dense as that is: what is
// drawn is bounded by the picture's size. What waits is a thin line, as in pictures of the timeline. The state is in
// attributes of #view (data-from, data-to, data-chosen, data-found), for tests and scripts.
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
  const thin = Math.max(2, Math.round(height * 0.28));
  const SHORT = "gaps";  // a row of what explains nothing is no higher than it must be
  const tallOf = (track) => (data.tracks[track][1] === SHORT ? Math.min(height, 9) : height);
  const tops = new Array(tracks).fill(0), heads = new Set();  // heads: the first track of each rank
  let shownOrder = [], bottom = 6;
  const layOut = (places) => {
    const of = places.map(() => []);
    data.tracks.forEach(([place], track) => of[place].push(track));
    shownOrder = places.flatMap((place) => of[place]);
    heads.clear();
    bottom = 6;
    for (const place of places) {
      for (const [number, track] of of[place].entries()) {
        if (!number) heads.add(track);
        tops[track] = bottom;
        bottom += tallOf(track) + 1;
      }
      if (of[place].length) bottom += height > 9 ? 9 : 4;
    }
  };
  layOut(data.slowest);
  const firsts = new Array(tracks + 1).fill(total);
  for (let slice = total - 1; slice >= 0; slice -= 1) firsts[column.track[slice]] = slice;
  for (let track = tracks - 1; track >= 0; track -= 1) firsts[track] = Math.min(firsts[track], firsts[track + 1]);
  const reach = new Float64Array(total);  // the latest end of a track so far; slices of gaps may overlap
  for (let track = 0; track < tracks; track += 1) {
    for (let slice = firsts[track], last = -Infinity; slice < firsts[track + 1]; slice += 1) {
      reach[slice] = last = Math.max(last, endOf(slice));
    }
  }
  const firstVisible = (track, moment) => {  // the first slice of a track that ends then or later
    let low = firsts[track], high = firsts[track + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (reach[middle] < moment) low = middle + 1; else high = middle;
    }
    return low;
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
      <button type="button" data-do="order" aria-pressed="true" title="else in the order of ranks">Slowest first</button>
      <span class="range" aria-live="polite"></span><span class="gap"></span>
      <span class="finding"><label class="range" for="search">find</label>
        <input type="search" id="search" placeholder="name of a node">
        <button type="button" data-do="before" title="the match before (Shift+Enter)" aria-label="match before">↑</button>
        <button type="button" data-do="after" title="the next match (Enter)" aria-label="next match">↓</button>
        <output id="found" for="search"></output></span>
    </div>
    <div class="controls kinds" role="group" aria-label="kinds to highlight"></div>
    <p class="note marks"></p>
    <div class="canvases">
      <canvas id="overview" aria-hidden="true"></canvas><canvas id="axis" aria-hidden="true"></canvas>
      <div id="body"><canvas id="lanes" tabindex="0" role="application" aria-describedby="hands"
        aria-label="Timeline. Left and right move, plus and minus zoom, with shift arrows choose a node."></canvas></div>
      <div id="tip" hidden></div>
      <div id="chosen" role="status" hidden></div>
    </div>
    <p class="note" id="hands"><kbd>Ctrl</kbd> and wheel zoom, <kbd>Shift</kbd> and wheel move, the wheel alone scrolls. Drag to move, click on a node for its figures. With the timeline focused: <kbd>←</kbd> <kbd>→</kbd> move,
      <kbd>+</kbd> <kbd>−</kbd> zoom, <kbd>0</kbd> everything, <kbd>Shift</kbd> and arrows choose the next node,
      <kbd>F</kbd> zooms to it, <kbd>Esc</kbd> lets it go.</p>`;
  const canvases = ["overview", "axis", "lanes"].map(byId);
  const [overview, axis, lanes] = canvases;
  const range = view.querySelector("span.range");
  const tip = byId("tip"), body = byId("body"), chosenBox = byId("chosen");
  let from = data.from, to = data.to, chosen = -1, anchor = 0, wanted = null, onPath = false, pressed = new Set(), gutter = 118, width = 0;
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
    && (!wanted || (column.count[slice] === 1 && wanted[column.name[slice]])) && (!onPath || column.critical[slice]);

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
  const solid = new Float64Array(data.kinds.length), waits = new Float64Array(data.kinds.length);  // of one pixel
  const drawTrack = (pen, track, top, tall, left, first, last, perNs, isSmall) => {
    const until = firsts[track + 1], right = left + (last - first) * perNs;
    const low = isSmall ? tall : Math.min(thin, tall), middle = top + (tall - low) / 2, faint = isSmall ? 0.3 : 1;
    let pixel = -1, meant = false, fill = "", alpha = -1, there = [];
    const paint = (colour, density, x, w, isThin) => {  // setting a pen's colour costs more than most rectangles
      if (alpha !== density) pen.globalAlpha = alpha = density;
      if (fill !== colour) pen.fillStyle = fill = colour;
      if (isThin) pen.fillRect(x, middle, w, low); else pen.fillRect(x, top, w, tall);
    };
    const dense = (share, isBright) => Math.max(0.15, Math.min(1, Math.round(share * 10) / 10)) * (isBright ? 1 : 0.18);
    const most = (of) => there.reduce((best, kind) => (of[kind] > of[best] ? kind : best), there[0]);
    const flush = () => {
      if (!there.length) return;
      const moving = most(solid), still = most(waits);
      if (waits[still] > 0) paint(fills[still], dense(waits[still] * faint, meant), pixel, 1, true);
      if (solid[moving] > 0) paint(fills[moving], dense(solid[moving], meant), pixel, 1, false);
      if (!solid[moving] && !waits[still]) paint(fills[moving], dense(0.3, meant), pixel, 1, true);  // takes no time
      for (const kind of there) solid[kind] = waits[kind] = 0;
      there = []; meant = false;
    };
    for (let slice = firstVisible(track, first); slice < until && column.start[slice] < last; slice += 1) {
      const begin = left + (column.start[slice] - first) * perNs, wide = column.length[slice] * perNs;
      const kind = column.kind[slice], busy = column.busy[slice] * perNs, still = column.still[slice] * perNs;
      if (wide < 1) {
        if (begin < left) continue;
        if (Math.floor(begin) !== pixel) { flush(); pixel = Math.floor(begin); }
        if (!there.includes(kind)) there.push(kind);
        solid[kind] += busy;
        waits[kind] += still;
        meant = meant || isMeant(slice);
        continue;
      }
      flush();
      const bright = isMeant(slice), several = column.count[slice] > 1;
      const span = (one, other) => [Math.max(one, left), Math.min(other, right) - Math.max(one, left)];
      const [x, w] = span(several ? begin : begin + still, begin + wide), [lineX, lineW] = span(begin, begin + (several ? wide : still));
      if (still && lineW > 0) paint(fills[kind], dense(several ? still / wide * faint : faint, bright), lineX, lineW, true);
      if (busy && w > 0) paint(fills[kind], dense(several ? busy / wide : 1, bright), x, w > 3 ? w - 0.75 : w, false);
      if (!isSmall && tall > 9 && w > 34 && busy) {
        const room = Math.floor((w - 8) / 6.6), name = nameOf(slice);
        pen.globalAlpha = alpha = 1;
        pen.fillStyle = fill = several || isHollow(kind) || !bright ? colours.ink : inks[kind];
        pen.fillText(name.length > room ? `${name.slice(0, room - 1)}…` : name, x + 4, top + tall / 2 + 0.5);
      }
    }
    flush();
    pen.globalAlpha = 1;
  };
  const isHollow = (kind) => data.kinds[kind].name === "gap";
  const hatched = (pen, colour) => {  // gaps are no work
    const tile = Object.assign(document.createElement("canvas"), { width: 6, height: 6 }), stroke = tile.getContext("2d");
    stroke.strokeStyle = colour;
    stroke.lineWidth = 1.6;
    for (const shift of [-6, 0, 6]) { stroke.moveTo(shift, 6); stroke.lineTo(shift + 6, 0); }
    stroke.stroke();
    return pen.createPattern(tile, "repeat");
  };
  const drawLanes = () => {
    const pen = prepare(lanes, bottom);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillStyle = colours.line;
    for (const tick of ticks()) pen.fillRect(Math.round(xOf(tick)), 0, 1, bottom);
    data.tracks.forEach((track, at) => {
      const tall = tallOf(at);
      if (tops[at] + tall < body.scrollTop - 40 || tops[at] > body.scrollTop + body.clientHeight + 40) return;
      pen.fillStyle = colours.track;
      pen.fillRect(gutter, tops[at], width - gutter, tall);
      drawTrack(pen, at, tops[at], tall, gutter, from, to, scale(), false);
    });
    drawLabels(pen);
    drawArrows(pen);
    if (chosen >= 0) {
      const x = Math.max(xOf(column.start[chosen]), gutter), end = Math.min(xOf(endOf(chosen)), width);
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 2;
      if (end >= gutter && x <= width) pen.strokeRect(x - 1, tops[column.track[chosen]] - 1, Math.max(end - x, 1) + 2, tallOf(column.track[chosen]) + 2);
    }
  };
  const drawLabels = (pen) => {
    let reached = -20;
    for (const at of shownOrder) {
      const track = data.tracks[at], middle = tops[at] + tallOf(at) / 2;
      let room = gutter - 14;
      pen.textAlign = "left";
      pen.fillStyle = colours.ink;
      if (heads.has(at) && middle - reached >= 11) {
        pen.fillText(data.ranks[track[0]], 8, height > 9 ? middle : tops[at] + 5);
        room -= pen.measureText(data.ranks[track[0]]).width + 6;
        reached = middle;
      }
      pen.fillStyle = colours.muted;
      pen.textAlign = "right";
      if (tallOf(at) > 8 && gutter > 100) pen.fillText(cut(pen, short(laneOf(track)), room), gutter - 6, middle);
    }
    pen.textAlign = "left";
  };
  const cut = (pen, name, room) => {
    let kept = name.length;
    const shown = () => (kept < name.length ? `${name.slice(0, kept)}…` : name);
    while (kept > 0 && pen.measureText(shown()).width > room) kept -= 1;
    return shown();
  };
  const short = (lane) => ({ communication: "comm.", collective: "coll.", "communication 2": "comm. 2" })[lane] || lane;
  const drawArrows = (pen) => {
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 1.25;
    pen.setLineDash([4, 3]);
    const middle = (slice) => tops[column.track[slice]] + tallOf(column.track[slice]) / 2;
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
    const key = [width, isDark.matches, [...pressed], onPath, byId("search").value, window.devicePixelRatio, shownOrder[0]].join();
    if (key === wholeKey) return;
    wholeKey = key;
    const pen = prepare(whole, tall), each = (tall - 6) / Math.max(tracks, 1);
    shownOrder.forEach((track, at) => {
      drawTrack(pen, track, 3 + at * each, Math.max(each - (each > 3 ? 1 : 0), 0.5), gutter, data.from, data.to, perNs, true);
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
      view.querySelectorAll(".kinds button[data-number]").forEach((button) => {
        const colour = fills[button.dataset.number];
        button.firstChild.style.background = isHollow(button.dataset.number)
          ? `repeating-linear-gradient(135deg, ${colour} 0 2px, transparent 2px 4px)` : colour;
      });
      fills = fills.map((colour, kind) => (isHollow(kind) ? hatched(lanes.getContext("2d"), colour) : colour));
      drawLanes();
      drawAxis();
      drawOverview();
      range.textContent = `${time(Math.max(from, 0))} to ${time(to)}: ${time(to - from)}`;
      placeChosen();
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
    const below = top + height;
    if (below > body.scrollTop + body.clientHeight) body.scrollTop = below + 8 - body.clientHeight;
  };

  // ---- choosing ----------------------------------------------------------------------------------------------
  const facts = (slice) => {
    const track = data.tracks[column.track[slice]], length = column.length[slice], bytes = column.bytes[slice];
    const found = [["where", `${data.ranks[track[0]]}, ${laneOf(track)}`], ["kind", data.kinds[column.kind[slice]].name]];
    found.push(["begins", `${time(column.start[slice])} (${column.start[slice].toLocaleString("en")} ns)`]);
    found.push(["ends", `${time(endOf(slice))} (${endOf(slice).toLocaleString("en")} ns)`], ["takes", time(length)]);
    if (column.count[slice] > 1) {
      found.push(["busy", `${plain(Math.min(100 * column.busy[slice] / Math.max(length, 1), 100), 1)} %`]);
      if (column.still[slice]) found.push(["waits", `${plain(Math.min(100 * column.still[slice] / length, 100), 1)} %`]);
      return found;
    }
    if (column.still[slice]) {
      found.push(["waits or queues", time(column.still[slice])], ["transfers", time(length - column.still[slice])]);
    }
    if (column.waited[slice]) found.push(["ready, but waited", time(column.waited[slice])]);
    if (data.groups[column.group[slice]]) found.push(["group", data.groups[column.group[slice]]]);
    if (bytes) found.push(["bytes", size(bytes)]);
    const moved = length - column.still[slice];
    if (bytes && moved > 0) found.push(["bandwidth", `${size(bytes * 1e9 / moved)}/s`]);
    const others = (partners.get(slice) || []).flat().filter((one) => one !== slice);
    const places = [...new Set(others.map((one) => data.tracks[column.track[one]][0]))].sort((a, b) => a - b);
    const named = places.map((place) => data.ranks[place].slice(5));
    if (column.critical[slice]) found.push(["critical path", "on it"]);
    if (named.length) found.push(["with ranks", named.length > 12 ? `${named.slice(0, 12).join(", ")}, …` : named.join(", ")]);
    found.push(["node", column.node[slice]]);
    return found;
  };
  const choose = (slice, toView = true, moment = -1) => {
    chosen = slice;
    chosenBox.hidden = slice < 0;
    chosenBox.replaceChildren();
    if (slice >= 0) {
      const heading = document.createElement("h3"), list = document.createElement("dl");
      const close = Object.assign(document.createElement("button"), { type: "button", textContent: "×", title: "let it go (Esc)" });
      close.setAttribute("aria-label", "let the node go");
      close.addEventListener("click", () => { choose(-1); lanes.focus(); });
      heading.textContent = nameOf(slice);
      for (const [name, value] of facts(slice)) {
        const pair = document.createElement("div");
        pair.append(Object.assign(document.createElement("dt"), { textContent: name }));
        pair.append(Object.assign(document.createElement("dd"), { textContent: value }));
        list.append(pair);
      }
      chosenBox.append(close, heading, list);
      anchor = moment < 0 ? column.start[slice] : moment;
      tip.hidden = true;
      if (toView) reveal(slice);
    }
    sayFound();
    draw();
  };
  const placeChosen = () => {  // beside the place that was clicked: below it, or above where there is no room
    if (chosen < 0) return;
    const track = column.track[chosen], room = body.parentElement, wide = chosenBox.offsetWidth, tall = chosenBox.offsetHeight;
    const x = Math.min(Math.max(xOf(Math.max(anchor, from)) + 10, 4), room.clientWidth - wide - 4);
    const top = body.offsetTop + tops[track] - body.scrollTop, below = top + tallOf(track) + 8;
    const fits = below + tall <= room.clientHeight || top - tall - 8 < 0;
    chosenBox.style.left = `${Math.max(x, 4)}px`;
    chosenBox.style.top = `${fits ? below : top - tall - 8}px`;
  };
  const sliceAt = (track, moment, tolerance) => {
    let best = -1, least = Infinity;
    for (let slice = firstVisible(track, moment - tolerance); slice < firsts[track + 1]; slice += 1) {
      if (column.start[slice] > moment + tolerance) break;
      if (endOf(slice) < moment - tolerance) continue;
      const apart = Math.max(column.start[slice] - moment, moment - endOf(slice), 0);
      if (apart <= tolerance && (apart < least || !column.length[slice])) { best = slice; least = apart; }
    }
    return best;
  };
  const sliceUnder = (event) => {
    const box = lanes.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const track = tops.findIndex((top, at) => y >= top && y <= top + tallOf(at));
    return track < 0 || x < gutter ? -1 : sliceAt(track, momentAt(x), 3 / scale());
  };
  const chooseBeside = (sideways, down) => {
    if (chosen < 0) {
      for (const track of shownOrder) {
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
    for (let at = shownOrder.indexOf(track) + down; at >= 0 && at < tracks; at += down) {
      const other = shownOrder[at], moment = (column.start[chosen] + endOf(chosen)) / 2, slice = sliceAt(other, moment, to - from);
      if (slice >= 0) { choose(slice); return; }
    }
  };

  // ---- hands -------------------------------------------------------------------------------------------------
  const reorder = (button) => {
    const isSlowest = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isSlowest));
    layOut(isSlowest ? data.slowest : data.ranks.map((_, place) => place));
    search();
  };
  const actions = {
    in: () => zoom(1 / 1.6), out: () => zoom(1.6), fit: () => show(data.from, data.to), order: reorder,
    before: () => toMatch(-1), after: () => toMatch(1),
  };
  view.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-do]");
    if (button) actions[button.dataset.do](button);
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
    if (drag && !drag.moved) {
      choose(sliceUnder(event), false, momentAt(event.clientX - lanes.getBoundingClientRect().left));
    }
    drag = null;
    lanes.classList.remove("dragging");
  });
  lanes.addEventListener("pointercancel", () => { drag = null; });
  lanes.addEventListener("pointerleave", () => { tip.hidden = true; });
  lanes.addEventListener("dblclick", (event) => zoom(0.4, momentAt(event.clientX - lanes.getBoundingClientRect().left)));
  const hover = (event) => {
    const slice = sliceUnder(event), box = view.querySelector(".canvases").getBoundingClientRect(), x = event.clientX - box.left;
    if (slice >= 0) {
      const still = column.count[slice] === 1 && column.still[slice] ? `, of which ${time(column.still[slice])} waiting` : "";
      tip.textContent = `${nameOf(slice)}: ${time(column.length[slice])}${still}, from ${time(column.start[slice])}`;
    } else {
      const y = event.clientY - lanes.getBoundingClientRect().top;
      const track = x < gutter ? tops.findIndex((top, at) => y >= top && y <= top + tallOf(at)) : -1;
      tip.textContent = track < 0 ? "" : `${data.ranks[data.tracks[track][0]]}, ${laneOf(data.tracks[track])}`;
    }
    tip.hidden = !tip.textContent;
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

  view.querySelector(".marks").textContent = [
    column.still.some((one) => one) ? "thin: waits for another rank, or in a queue of its own" : "",
    "pale: takes only part of the time",
  ].filter(Boolean).join("; ");
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
      search();
    });
    kindBox.append(button);
  });
  if (column.critical.some((one) => one)) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "critical path" });
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      onPath = !onPath;
      button.setAttribute("aria-pressed", String(onPath));
      search();
    });
    kindBox.append(button);
  }
  let matches = [];  // slices, row by row as they are shown
  const sayFound = () => {
    const at = matches.indexOf(chosen), count = matches.length.toLocaleString("en");
    const merged = column.count.some((one) => one > 1) ? ", not counting nodes drawn as one" : "";
    byId("found").textContent = !wanted ? "" : !matches.length ? `no match${merged}`
      : `${at < 0 ? count : `${(at + 1).toLocaleString("en")} of ${count}`} ${matches.length > 1 ? "matches" : "match"}${merged}`;
    view.dataset.found = matches.length;
    view.querySelectorAll('[data-do="before"], [data-do="after"]').forEach((button) => { button.disabled = !matches.length; });
  };
  const search = () => {
    const text = byId("search").value.trim().toLowerCase();
    wanted = text ? data.names.map((name) => name.toLowerCase().includes(text)) : null;
    matches = [];
    if (wanted) {
      for (const track of shownOrder) {
        for (let slice = firsts[track]; slice < firsts[track + 1]; slice += 1) {
          if (isMeant(slice)) matches.push(slice);
        }
      }
    }
    sayFound();
    draw();
  };
  const toMatch = (way) => {
    if (!matches.length) return;
    const at = matches.indexOf(chosen), next = at < 0 ? (way > 0 ? 0 : matches.length - 1) : at + way;
    choose(matches[(next + matches.length) % matches.length]);
  };
  byId("search").addEventListener("input", search);
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") toMatch(event.shiftKey ? -1 : 1);
  });
  body.addEventListener("scroll", draw);
  new ResizeObserver(draw).observe(body);
  isDark.addEventListener("change", draw);
  choose(-1);
})();
