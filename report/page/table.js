// Sorting: a click on a column's title sorts its table, a second click turns the order round.
for (const table of document.querySelectorAll('table.sortable')) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => {
      const up = head.getAttribute('aria-sort') !== 'ascending';
      const value = row => {
        const cell = row.cells[column];
        if (!('v' in cell.dataset)) return cell.textContent;
        return cell.dataset.v === '' ? Infinity : Number(cell.dataset.v);
      };
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row, i) => [value(row), i, row]);
      rows.sort(([a, i], [b, j]) => (a < b ? -1 : a > b ? 1 : 0) * (up ? 1 : -1) || i - j);
      body.append(...rows.map(([, , row]) => row));
      heads.forEach(each => each.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    };
  });
}
// A field above the table of plans: rows stay whose text has all the words in it.
for (const table of document.querySelectorAll('table.cards')) {
  const field = document.createElement('input');
  field.type = 'search';
  field.className = 'filter';
  field.placeholder = 'filter rows';
  field.setAttribute('aria-label', 'filter rows');
  field.oninput = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
    }
  };
  table.parentNode.before(field);
}
addEventListener('beforeprint', () => {
  for (const each of document.querySelectorAll('details')) each.open = true;
});
