// Lets a click on a column's head order the table by it. Without scripts the tables stay as they
// are, ordered by what matters most.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => order(table, heads, place));
  });
}

function order(table, heads, place) {
  const numbers = heads[place].classList.contains("n");
  const before = heads[place].getAttribute("aria-sort");
  const descending = before ? before === "ascending" : numbers;
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[place].setAttribute("aria-sort", descending ? "descending" : "ascending");
  const value = (row) => {
    const cell = row.cells[place];
    return numbers ? Number(cell.dataset.value ?? -Infinity) : cell.textContent;
  };
  const compare = (a, b) => (numbers ? a - b : a.localeCompare(b, "en", { numeric: true }));
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => (descending ? -1 : 1) * compare(value(a), value(b)));
  table.tBodies[0].append(...rows);
}
