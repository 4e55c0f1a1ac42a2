"use strict";
// Finds rows of long tables. Words are found anywhere in labels, numbers only as a whole: 5 does not find 15.
// This page is also XML, so that neither ampersands nor "less than" may stand here.
for (const box of document.querySelectorAll(".filter")) {
  const table = document.getElementById("rows-" + box.dataset.table);
  const more = document.getElementById("more-" + box.dataset.table);
  const input = box.querySelector("input");
  const output = box.querySelector("output");
  const first = Array.from(table.tBodies[0].rows);
  const lines = more ? more.textContent.split("\n") : [];
  const labels = Number(box.dataset.labels);
  const heads = table.tHead.rows[0].cells;
  const found = table.insertBefore(document.createElement("tbody"), table.tFoot);
  const most = 200;

  const matches = (words, texts) => words.every((word) => texts.some((text) =>
    /^[0-9.]+$/.test(word) ? (text.match(/[0-9.]+/g) || []).includes(word) : text.toLowerCase().includes(word)));

  const labelled = (line) => line.split("\t").slice(0, labels);

  const row = (line) => {
    const made = document.createElement("tr");
    const texts = line.split("\t").slice(labels);
    const grade = texts.pop();
    const add = (kind, text, names) => {
      const cell = made.appendChild(document.createElement(kind));
      cell.textContent = text;
      cell.className = names;
      return cell;
    };
    for (const label of labelled(line)) {
      const head = add("th", label, "");
      head.scope = "row";
      head.dir = "auto";
    }
    texts.forEach((text, k) => add("td", text, heads[labels + k].className));
    const mark = document.createElement("span");
    mark.className = "grade " + grade.replaceAll(" ", "-");
    mark.textContent = grade;
    add("td", "", "").appendChild(mark);
    return made;
  };

  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const each of first) {
      each.hidden = !matches(words, Array.from(each.querySelectorAll("th"), (head) => head.textContent));
      count += each.hidden ? 0 : 1;
    }
    const others = words.length ? lines.filter((line) => matches(words, labelled(line))) : [];
    found.replaceChildren(...others.slice(0, Math.max(most - count, 0)).map(row));
    const all = count + others.length;
    const total = first.length + lines.length;
    output.textContent = words.length
      ? `${all.toLocaleString("en")} of ${total.toLocaleString("en")} rows${all > most ? `; the first ${most} are shown` : ""}`
      : "";
  };

  input.addEventListener("input", show);
  box.hidden = false;
}
