"use strict";
// What another parallelism would give each subtask, as Flink deals key groups out.
const data = JSON.parse(document.getElementById("data").textContent);
const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// As Python writes it: of two numbers that are as near, the even one.
function fixed(number, digits) {
  const scaled = number * 10 ** digits;
  const tie = Number.isInteger(number * 2 ** (digits + 1)) && scaled % 1 === 0.5;
  const rounded = Math.floor(scaled) + (Math.floor(scaled) % 2);
  return (tie ? rounded / 10 ** digits : number).toFixed(digits);
}

function bytesText(count) {
  let size = count;
  let unit = 0;
  for (; size >= 1024 && unit < units.length - 1; unit += 1) size /= 1024;
  return `${fixed(size, unit ? 1 : 0)} ${units[unit]}`;
}

// KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex
function keyGroupRange(groups, parallelism, index) {
  const first = Math.floor((index * groups + parallelism - 1) / parallelism);
  return [first, Math.floor(((index + 1) * groups - 1) / parallelism)];
}

// The sums of the first 0, 1, ... key groups.
function sumsOf(operator, column) {
  const sums = new Array(operator.groups + 1).fill(0);
  operator.at.forEach((group, index) => { sums[group + 1] = operator[column][index]; });
  for (let group = 0; group < operator.groups; group += 1) sums[group + 1] += sums[group];
  return sums;
}

function cell(name, content, scope) {
  const made = document.createElement(name);
  made.className = "number";
  made.textContent = content;
  if (scope) made.scope = scope;
  return made;
}

function connect(number, operator) {
  const bytes = sumsOf(operator, "bytes");
  const entries = sumsOf(operator, "entries");
  const input = document.getElementById(`parallelism-${number}`);
  const bars = document.querySelectorAll(`#groups-${number} rect`);
  const step = Math.ceil(operator.groups / bars.length);

  function show() {
    const parallelism = Number(input.value);
    const summary = document.getElementById(`summary-${number}`);
    if (!Number.isInteger(parallelism) || parallelism < 1 || parallelism > operator.groups) {
      summary.textContent = `The parallelism is a whole number from 1 to ${operator.groups}.`;
      return;
    }
    const rows = [];
    const sizes = [];
    for (let index = 0; index < parallelism; index += 1) {
      const [first, last] = keyGroupRange(operator.groups, parallelism, index);
      const size = bytes[last + 1] - bytes[first];
      sizes.push(size);
      for (let bar = Math.ceil(first / step); bar * step <= last; bar += 1) {
        bars[bar].setAttribute("class", index % 2 ? "second" : "first");
      }
      if (index < data.shown) {
        const row = document.createElement("tr");
        const held = entries[last + 1] - entries[first];
        row.append(
          cell("th", String(index), "row"),
          cell("td", `${first} to ${last}`),
          cell("td", held.toLocaleString("en-US")),
          cell("td", bytesText(size)),
        );
        rows.push(row);
      }
    }
    document.getElementById(`subtasks-${number}`).replaceChildren(...rows);
    const most = sizes.reduce((a, b) => Math.max(a, b));
    const least = sizes.reduce((a, b) => Math.min(a, b));
    const mean = bytes[operator.groups] / parallelism;
    summary.textContent =
      `At parallelism ${parallelism}: ${bytesText(least)} to ${bytesText(most)} a subtask;` +
      ` skew ${fixed(mean ? most / mean : 1, 3)}; the heaviest is subtask ${sizes.indexOf(most)}.`;
    const left = parallelism - rows.length;
    document.getElementById(`more-${number}`).textContent =
      left ? `… and ${left.toLocaleString("en-US")} more` : "";
  }

  input.addEventListener("input", show);
  document.getElementById(`form-${number}`).addEventListener("submit", (event) => event.preventDefault());
  show(); // a browser may have kept what was typed before a reload
}

for (const [number, operator] of Object.entries(data.operators)) connect(number, operator);
