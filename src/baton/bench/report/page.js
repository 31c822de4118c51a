"use strict";
const plots = JSON.parse(document.getElementById("plots").textContent);
const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function themed(layout, height) {
  const made = JSON.parse(JSON.stringify(layout));
  const axis = {
    gridcolor: colour("--grid"), linecolor: colour("--rule"), zerolinecolor: colour("--rule"),
    tickcolor: colour("--rule"), automargin: true,
  };
  for (const name of Object.keys(made)) {
    if (/^[xy]axis\d*$/.test(name)) made[name] = { ...axis, ...made[name] };
    if (made[name]?.type === "log") made[name] = { minor: { showgrid: true,
      gridcolor: colour("--grid") }, exponentformat: "none", ...made[name] };
  }
  return {
    height, margin: { l: 60, r: 16, t: 16, b: 48 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("--ink") },
    hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--rule"),
      font: { color: colour("--ink") } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    ...made,
  };
}

function draw() {
  for (const [id, plot] of Object.entries(plots)) {
    Plotly.react(id, plot.data, themed(plot.layout, plot.height),
      { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] });
  }
}

draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
