"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const inks = {light: ["#1d2433", "rgba(29,36,51,.16)"], dark: ["#e6e9f0", "rgba(230,233,240,.2)"]};
  const drawn = new Set();

  function draw(plot, scheme, width) {
    const {data, layout} = JSON.parse(plot.nextElementSibling.textContent);
    const [ink, grid] = inks[scheme];
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
      layout[name] = {gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true, ...layout[name]};
    }
    Plotly.react(plot, data, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", template: {}, hovermode: "closest",
      margin: {l: 52, r: 14, t: 12, b: 44}, height: Number(plot.dataset.height), autosize: true,
      legend: {orientation: "h", yref: "container", y: 0, yanchor: "bottom"}, font: {color: ink, size: 12}, dragmode: false,
      ...(width ? {width} : {}), ...layout,
    }, {displayModeBar: false, responsive: true});
    drawn.add(plot);
  }

  const scheme = () => (dark.matches ? "dark" : "light");
  const plots = [...document.querySelectorAll(".plot")];
  const near = new IntersectionObserver((seen) => {
    for (const {isIntersecting, target} of seen) {
      if (isIntersecting && !drawn.has(target)) draw(target, scheme());
    }
  }, {rootMargin: "600px"});
  plots.forEach((plot) => near.observe(plot));
  dark.addEventListener("change", () => drawn.forEach((plot) => draw(plot, scheme())));

  for (const button of document.querySelectorAll(".copy button")) {
    button.addEventListener("click", async () => {
      const shown = button.previousElementSibling;
      try {
        await navigator.clipboard.writeText(shown.textContent.replace(/^\$ /gm, ""));
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(shown);
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
  }

  const svg = (name, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };

  function parallel(box) {
    const {axes, kinds, words} = JSON.parse(box.nextElementSibling.textContent);
    const said = box.parentElement.querySelector("output");
    const [width, height, top, bottom, side] = [Math.max(640, 110 * axes.length, box.clientWidth), 352, 40, 16, 60];
    const x = (place) => side + (place * (width - 2 * side)) / Math.max(1, axes.length - 1);
    const y = (at) => height - bottom - at * (height - top - bottom);
    const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "group"});
    const ranges = axes.map(() => null);
    const lines = kinds.map((kind, trial) => {
      const points = axes.flatMap(({places}, place) => (places[trial] === null ? [] : [`${x(place)},${y(places[trial])}`]));
      const line = svg("path", {class: kind, d: points.map((point, at) => (at ? "L" : "M") + point).join("")});
      line.append(svg("title", {}, words[trial]));
      return line;
    });
    picture.append(...lines.filter((_, trial) => kinds[trial] !== "best"), ...lines.filter((_, trial) => kinds[trial] === "best"));
    const shown = axes.map(({name, ticks}, place) => {
      const range = svg("rect", {class: "range", x: x(place) - 7, width: 14, y: 0, height: 0});
      const area = svg("rect", {x: x(place) - 12, width: 24, y: top - 8, height: height - top - bottom + 16});
      picture.append(svg("line", {x1: x(place), x2: x(place), y1: y(0), y2: y(1)}), range, area);
      picture.append(svg("text", {class: "name", x: x(place), y: 16, "text-anchor": "middle"}, name));
      const half = ticks.length > 1 ? (ticks[1][0] - ticks[0][0]) / 2.01 : 1;
      const buttons = ticks.map(([at, label]) => {
        const button = svg("text", {role: "button", tabindex: 0, "aria-label": `${name} ${label}`, x: x(place) + 9, y: y(at) + 4}, label);
        const choose = () => set(place, button.getAttribute("aria-pressed") === "true" ? null : [at - half, at + half]);
        button.addEventListener("click", choose);
        button.addEventListener("keydown", (event) => ["Enter", " "].includes(event.key) && (event.preventDefault(), choose()));
        return button;
      });
      picture.append(...buttons);
      const at = (event) => {
        const {top: above, height: tall} = picture.getBoundingClientRect();
        return (height - bottom - ((event.clientY - above) * height) / tall) / (height - top - bottom);
      };
      area.addEventListener("pointerdown", (event) => {
        const from = at(event);
        area.setPointerCapture(event.pointerId);
        area.onpointermove = (moved) => set(place, [Math.min(from, at(moved)), Math.max(from, at(moved))]);
        set(place, null);
      });
      area.addEventListener("pointerup", () => (area.onpointermove = null));
      return {range, buttons};
    });

    function set(place, wanted) {
      ranges[place] = wanted;
      shown.forEach(({range, buttons}, axis) => {
        const [low, high] = ranges[axis] || [0, 0];
        range.setAttribute("y", y(Math.min(1, high)));
        range.setAttribute("height", ranges[axis] ? y(Math.max(0, low)) - y(Math.min(1, high)) : 0);
        buttons.forEach((button, tick) => {
          const inside = axes[axis].ticks[tick][0];
          button.setAttribute("aria-pressed", Boolean(ranges[axis]) && low <= inside && inside <= high);
        });
      });
      const kept = kinds.map((_, trial) => axes.every(({places}, axis) => {
        const at = places[trial];
        return !ranges[axis] || (at !== null && ranges[axis][0] <= at && at <= ranges[axis][1]);
      }));
      lines.forEach((line, trial) => line.classList.toggle("out", !kept[trial]));
      said.textContent = ranges.some(Boolean) ? `${kept.filter(Boolean).length} of ${kinds.length} trials.` : "";
    }

    box.append(picture);
    set(0, null);
  }
  document.querySelectorAll(".parallel").forEach(parallel);

  const {live} = document.documentElement.dataset;
  if (live) {
    setInterval(async () => {
      try {
        const answer = await fetch("version");
        if (answer.ok && (await answer.text()) !== live && !document.hidden) location.reload();
      } catch {
        document.title = "(ended) " + document.title.replace("(ended) ", "");
      }
    }, 3000);
  }

  addEventListener("beforeprint", () => plots.forEach((plot) => draw(plot, "light", 640)));
  addEventListener("afterprint", () => plots.forEach((plot) => draw(plot, scheme())));
})();
