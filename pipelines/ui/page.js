"use strict";
// Completes names of tables and columns in a query: a listbox below the text, as ARIA has it.
const box = document.getElementById("of-query");
const list = document.getElementById("offers");
const said = document.getElementById("completing");
const names = [...new Set([...document.querySelectorAll("#names code")].map((each) => each.textContent))]
  .sort((one, other) => one.length - other.length);
const MOST = 8;
let at = -1;

// The word that ends at the cursor.
function word() {
  return /[\w."-]*$/.exec(box.value.slice(0, box.selectionStart))[0];
}

function close() {
  list.hidden = true;
  list.replaceChildren();
  box.removeAttribute("aria-activedescendant");
  said.textContent = "";
  at = -1;
}

function choose(index) {
  at = (index + list.children.length) % list.children.length;
  [...list.children].forEach((each, number) => each.setAttribute("aria-selected", String(number === at)));
  box.setAttribute("aria-activedescendant", list.children[at].id);
}

function insert(name) {
  const begin = box.selectionStart - word().length;
  box.setRangeText(name, begin, box.selectionStart, "end");
  close();
  box.focus();
}

function offer() {
  const typed = word().toLowerCase();
  close();
  if (!typed) return;
  const fit = (name) => name.toLowerCase();
  const found = [
    ...names.filter((name) => fit(name).startsWith(typed)),
    ...names.filter((name) => !fit(name).startsWith(typed) && fit(name).includes(typed)),
  ].filter((name) => fit(name) !== typed).slice(0, MOST);
  found.forEach((name, number) => {
    const item = document.createElement("li");
    item.id = `offer-${number}`;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", "false");
    item.textContent = name;
    item.addEventListener("mousedown", (event) => { event.preventDefault(); insert(name); });
    list.append(item);
  });
  list.hidden = !found.length;
  if (!found.length) return;
  const count = found.length === 1 ? "1 name" : `${found.length} names`;
  said.textContent = `${count}: arrow keys choose, Enter or Tab inserts, Escape closes`;
}

box.setAttribute("aria-autocomplete", "list");
box.setAttribute("aria-controls", "offers");
box.addEventListener("input", offer);
box.addEventListener("blur", close);
box.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    box.form.requestSubmit();
  } else if (list.hidden) {
    return;
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    choose(event.key === "ArrowDown" ? at + 1 : at < 0 ? -1 : at - 1);
  } else if (event.key === "Escape") {
    close();
  } else if ((event.key === "Enter" || event.key === "Tab") && at >= 0) {
    insert(list.children[at].textContent);
  } else {
    return;
  }
  event.preventDefault();
});
