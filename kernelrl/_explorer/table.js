// A table whose lines can be sorted and selected, for anywidget; `selected` is the number of the line, on both sides
function render({ model, el }) {
  const box = document.createElement("div"); box.className = "krl-table"; el.appendChild(box);
  let key = -1, down = true;
  const shown = v => v === null ? "" : typeof v === "number" ? (Math.abs(v) >= 1000 ? v.toFixed(0) : v.toPrecision(3)) : v;
  const order = rows => key < 0 ? rows : [...rows].sort((a, b) => {
    const x = a[1][key], y = b[1][key];
    if (x === null || y === null) return (x === null) - (y === null);
    return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
  });
  const select = i => { model.set("selected", i); model.save_changes(); };
  const mark = () => box.querySelectorAll("tbody tr").forEach(tr => {
    const on = Number(tr.dataset.i) === model.get("selected");
    tr.classList.toggle("krl-on", on); tr.setAttribute("aria-selected", on);
    if (on) tr.scrollIntoView({ block: "nearest" });
  });
  const draw = () => {
    const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    model.get("columns").forEach((c, k) => {
      const th = document.createElement("th"); th.textContent = c + (k === key ? (down ? " \u25be" : " \u25b4") : "");
      th.onclick = () => { down = k === key ? !down : true; key = k; draw(); }; head.appendChild(th);
    });
    order(model.get("rows").map((r, i) => [i, r])).forEach(([i, r]) => {
      const tr = body.insertRow(); tr.dataset.i = i; tr.tabIndex = 0; tr.onclick = () => select(i);
      tr.onkeydown = e => {
        const to = e.key === "ArrowDown" ? tr.nextSibling : e.key === "ArrowUp" ? tr.previousSibling : e.key === "Enter" ? tr : null;
        if (to) { e.preventDefault(); e.stopPropagation(); to.focus(); select(Number(to.dataset.i)); }
      };
      r.forEach(v => { const td = tr.insertCell(); td.textContent = shown(v); td.title = v ?? ""; if (typeof v === "number") td.className = "krl-num"; });
    });
    box.replaceChildren(table); mark();
  };
  model.on("change:rows", draw); model.on("change:selected", mark); draw();
}
export default { render };
