// Divides a rectangle into parts whose areas are as given, each as near to a square as possible.

/**
 * Return the rectangles { x, y, width, height } of values, which are in descending order.
 * @param {number[]} values areas, in any unit.
 */
export function squarified(values, width, height) {
  const total = values.reduce((sum, each) => sum + each, 0);
  if (!total) return [];
  const areas = values.map((each) => (each / total) * width * height);
  const found = [];
  let left = { x: 0, y: 0, width, height };
  let row = [];
  for (const area of areas) {
    const side = Math.min(left.width, left.height);
    if (row.length && worst([...row, area], side) > worst(row, side)) {
      left = place(row, left, found);
      row = [];
    }
    row.push(area);
  }
  place(row, left, found);
  return found;
}

function worst(row, side) {
  const sum = row.reduce((all, each) => all + each, 0);
  return Math.max((side * side * Math.max(...row)) / (sum * sum), (sum * sum) / (side * side * Math.min(...row)));
}

/** Place a row along the shorter side; return the rectangle that is left. */
function place(row, { x, y, width, height }, found) {
  const sum = row.reduce((all, each) => all + each, 0);
  const isWide = width >= height;
  const thick = sum / (isWide ? height : width) || 0;
  let at = isWide ? y : x;
  for (const area of row) {
    const long = area / thick || 0;
    found.push(isWide ? { x, y: at, width: thick, height: long } : { x: at, y, width: long, height: thick });
    at += long;
  }
  return isWide ? { x: x + thick, y, width: width - thick, height } : { x, y: y + thick, width, height: height - thick };
}
