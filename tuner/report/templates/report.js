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
  addEventListener("beforeprint", () => plots.forEach((plot) => draw(plot, "light", 640)));
  addEventListener("afterprint", () => plots.forEach((plot) => draw(plot, scheme())));
})();
