"use strict";
// Follow the system's colour scheme until the button is pressed.
const root = document.documentElement;
const wanted = location.hash === "#dark" || (location.hash !== "#light" &&
  matchMedia("(prefers-color-scheme: dark)").matches);
root.classList.toggle("dark", wanted);
document.getElementById("theme").onclick = () => root.classList.toggle("dark");

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// Shows the values at the step under the pointer.
function show(figure, svg, event) {
  const box = svg.getBoundingClientRect();
  const d = Object.fromEntries(
    Object.entries(svg.dataset).map(([name, text]) => [name, Number(text)]));
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const x = (event.clientX - box.left) * width / box.width;
  // Label -> the nearest point of its values, and of their mean if it is drawn.
  const rows = new Map();
  let at = null;
  for (const line of svg.querySelectorAll("polyline")) {
    const points = line.getAttribute("points").split(" ").map(
      pair => pair.split(",").map(Number));
    const near = points.reduce(
      (a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
    const apart = Math.abs(near[0] - x);
    if (at === null || apart < Math.abs(at - x)) at = near[0];
    const fraction = (height - d.bottom - near[1]) / (height - d.top - d.bottom);
    const value = d.low + fraction * (d.high - d.low);
    const {label} = line.dataset;
    const kind = line.classList.contains("raw") ? "raw" : "line";
    if (!rows.has(label)) rows.set(label, {});
    const row = rows.get(label);
    if (!row[kind] || apart < row[kind].apart)
      row[kind] = {apart, text: Number(value.toPrecision(3))};
  }
  if (at === null) return;
  const step = Math.round((at - d.left) / (width - d.left - d.right) * d.last);
  hide(figure);
  const tip = element("div", "tip", `step ${step}`);
  for (const [label, {raw, line}] of rows)
    tip.append(element("div", "", raw ?
      `${label}: ${raw.text} (mean ${line.text})` : `${label}: ${line.text}`));
  figure.append(tip);
  tip.style.top = `${svg.offsetTop}px`;
  if (at > width / 2) tip.style.left = "8px"; else tip.style.right = "8px";
  const mark = document.createElementNS(svg.namespaceURI, "line");
  for (const [name, value] of Object.entries(
    {x1: at, x2: at, y1: d.top, y2: height - d.bottom, class: "at"}))
    mark.setAttribute(name, value);
  svg.append(mark);
}

function hide(figure) {
  figure.querySelectorAll(".tip, line.at").forEach(one => one.remove());
}

function prepare(figure) {
  const svg = figure.querySelector("svg");
  if (svg) svg.ariaLabel = figure.querySelector("figcaption").textContent;
  if (!svg || !svg.querySelector("polyline")) return;
  for (const kind of ["pointermove", "pointerdown"])
    svg.addEventListener(kind, event => show(figure, svg, event));
  svg.addEventListener("pointerleave", () => hide(figure));
}

// Each browser lists the texts that match its filters.
const PAGE = 20;

function choice(name, values) {
  const select = element("select");
  select.ariaLabel = name;
  select.append(new Option(name, ""));
  values.forEach(value => select.append(new Option(value, value)));
  return select;
}

function distinct(texts, key) {
  return [...new Set(texts.map(text => text[key]))].filter(value => value !== "");
}

function card(text, several) {
  const shown = element("details", "text");
  const head = element("summary");
  const colour = text.reward > 0 ? "up" : text.reward < 0 ? "down" : "";
  if (text.reward !== null)
    head.append(element("span", `reward ${colour}`, text.reward.toFixed(2)), " ");
  const details = Object.entries(text.details).map(
    ([name, value]) => `${name} ${value}`).join(", ");
  const where = [...(several ? [text.run] : []), `step ${text.step}`, text.group, ...text.rules].join(" · ");
  head.append(where, " ", element("small", "", details));
  shown.append(head, element("pre", "prompt", text.prompt),
    element("pre", "", text.completion));
  return shown;
}

function browse(browser) {
  const texts = JSON.parse(
    document.getElementById(browser.dataset.texts).textContent);
  texts.sort((a, b) => b.step - a.step);
  const run = choice("all runs", distinct(texts, "run"));
  const group = choice("all groups", distinct(texts, "group"));
  const reward = choice("any reward", ["above 0", "0", "below 0"]);
  const words = element("input");
  words.placeholder = words.ariaLabel = "words in the text";
  const count = element("p", "hint");
  const list = element("div");
  const more = element("button", "", "more");
  const filters = element("div", "filters");
  if (run.length > 2) filters.append(run);
  filters.append(group, reward, words);
  browser.append(filters, count, list, more);
  let limit = PAGE;
  function update() {
    const wanted = words.value.toLowerCase();
    const found = texts.filter(text =>
      (!run.value || text.run === run.value) &&
      (!group.value || text.group === group.value) &&
      (!reward.value || (text.reward > 0 ? "above 0" :
        text.reward < 0 ? "below 0" : "0") === reward.value) &&
      (!wanted || (text.prompt + text.completion).toLowerCase().includes(wanted)));
    count.textContent = `${found.length} of ${texts.length} texts, newest first`;
    list.replaceChildren(...found.slice(0, limit).map(
      text => card(text, run.length > 2)));
    more.hidden = found.length <= limit;
  }
  more.onclick = () => { limit += PAGE; update(); };
  for (const input of [run, group, reward, words])
    input.oninput = () => { limit = PAGE; update(); };
  update();
}

function start() {
  document.querySelectorAll("figure").forEach(prepare);
  document.querySelectorAll(".browser").forEach(browse);
}
start();

// A live page loads its newest version and keeps the reader's open sections,
// filters and scroll position.
const live = Number(document.body.dataset.live);
const inputs = () => document.querySelectorAll(".browser select, .browser input");
const opened = () => document.querySelectorAll("details[id]");
let tag = "";

async function renew() {
  const status = document.getElementById("live");
  try {
    const answer = await fetch(location.pathname, {headers: {"If-None-Match": tag}});
    status.textContent = `live, checked at ${new Date().toLocaleTimeString()}`;
    if (answer.status === 304 || !answer.ok) return;
    tag = answer.headers.get("ETag");
    const text = await answer.text();
    const newest = new DOMParser().parseFromString(text, "text/html");
    if (!newest.querySelector("main")) return location.reload();
    const values = [...inputs()].map(input => input.value);
    const open = new Map([...opened()].map(one => [one.id, one.open]));
    const top = scrollY;
    document.querySelector("main").replaceWith(newest.querySelector("main"));
    document.querySelector("nav").replaceWith(newest.querySelector("nav"));
    start();
    inputs().forEach((input, index) => {
      if (!values[index]) return;
      input.value = values[index];
      input.oninput();
    });
    opened().forEach(one => { one.open = open.get(one.id) ?? one.open; });
    scrollTo(0, top);
  } catch (error) {
    status.textContent = "not live: azr_jax.report --follow has stopped";
  }
}
if (live) setInterval(renew, 1000 * live);
