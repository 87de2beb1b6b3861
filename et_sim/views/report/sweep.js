// Points of a sweep: choosing one in a chart or a table shows its values, and marks it in every chart.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("points").textContent);
  const panel = document.getElementById("chosen");
  if (!panel) return;
  const SVG = "http://www.w3.org/2000/svg", INSET = 8, LAST = 1000, REACH = 24;
  const rows = data.scales[0].length;
  document.documentElement.classList.add("js");
  panel.hidden = false;

  const charts = [...document.querySelectorAll("svg.chart")].map((svg) => {
    const [left, top, width, height] = svg.dataset.box.split(" ").map(Number);
    const parallel = svg.dataset.parallel ? svg.dataset.parallel.split(" ").map(Number) : null;
    return { svg, left, top, width, height, parallel, scale: Number(svg.dataset.scale) };
  });
  const xOf = (chart, place) => chart.left + INSET + (chart.width - 2 * INSET) * place / LAST;
  const yOf = (chart, place) => chart.top + chart.height - INSET - (chart.height - 2 * INSET) * place / LAST;
  const corners = (chart, row) => chart.parallel
    .map((scale, at) => [chart.left + chart.width * at / (chart.parallel.length - 1 || 1), data.scales[scale][row]])
    .filter(([, place]) => place !== null).map(([x, place]) => [x, yOf(chart, place)]);

  const mark = (chart, row) => {
    chart.svg.querySelectorAll(".picked").forEach((old) => old.remove());
    const shape = document.createElementNS(SVG, chart.parallel ? "path" : "circle");
    shape.setAttribute("class", "picked");
    if (chart.parallel) {
      shape.setAttribute("d", `M${corners(chart, row).map((corner) => corner.join(" ")).join("L")}`);
    } else {
      const place = data.scales[chart.scale][row];
      if (place === null) return;
      shape.setAttribute("cx", xOf(chart, place));
      shape.setAttribute("cy", yOf(chart, data.scales[0][row]));
      shape.setAttribute("r", 6);
    }
    chart.svg.append(shape);
  };

  const element = (name, content, parent) => {
    const made = document.createElement(name);
    made.textContent = content;
    parent.append(made);
    return made;
  };
  const quoted = (text) => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
  let chosen = 0;
  const step = (by, words) => {
    const button = element("button", words, panel);
    button.type = "button";
    button.disabled = chosen + by < 0 || chosen + by >= rows;
    button.addEventListener("click", () => {
      choose(chosen + by);
      const again = [...panel.querySelectorAll("button")].find((one) => one.textContent === words);
      again.focus();
    });
  };

  const choose = (row) => {
    chosen = row;
    charts.forEach((chart) => mark(chart, row));
    document.querySelectorAll("button[data-row]").forEach((button) => {
      button.setAttribute("aria-pressed", String(Number(button.dataset.row) === row));
    });
    panel.textContent = "";
    const [[, numbers, places], ...values] = data.values;
    const number = numbers[places[row]];
    element("h2", `Point ${number}`, panel);
    step(-1, "the next faster");
    panel.append(" ");
    step(1, "the next slower");
    const list = element("dl", "", panel);
    list.className = "facts";
    values.filter(([, texts, at]) => texts[at[row]] !== "").forEach(([name, texts, at]) => {
      const fact = element("div", "", list);
      element("dt", name, fact);
      element("dd", texts[at[row]], fact);
    });
    const more = element("p", "", panel);
    more.className = "note";
    if (data.pages[row]) {
      element("a", "The report of its run", more).href = data.pages[row];
    } else if (data.runs[row]) {
      more.append("The report of its run: ");
      element("code", `et-sim report ${quoted(data.runs[row])} --html run.html`, more);
    } else {
      more.append("To have its run: ");
      element("code", data.again + number, more);
    }
  };

  const nearest = (chart, x, y) => {
    let found = -1, least = REACH;
    for (let row = 0; row < rows; row += 1) {
      let away = Infinity;
      if (chart.parallel) {
        const line = corners(chart, row);
        const at = line.findIndex(([across]) => across >= x);
        if (at > 0) {
          const [[left, from], [right, to]] = [line[at - 1], line[at]];
          away = Math.abs(from + (to - from) * (x - left) / (right - left) - y);
        }
      } else if (data.scales[chart.scale][row] !== null) {
        away = Math.hypot(xOf(chart, data.scales[chart.scale][row]) - x, yOf(chart, data.scales[0][row]) - y);
      }
      if (away < least) [found, least] = [row, away];
    }
    return found;
  };
  charts.forEach((chart) => chart.svg.addEventListener("click", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.svg.getScreenCTM().inverse());
    const row = nearest(chart, at.x, at.y);
    if (row >= 0) choose(row);
  }));
  document.querySelectorAll("button[data-row]").forEach((button) => {
    button.addEventListener("click", () => choose(Number(button.dataset.row)));
  });
  choose(0);
})();
