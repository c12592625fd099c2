// Timelines that zoom. The page has a picture that needs no script; a canvas replaces it when it
// comes into view. Drawing visits the visible bars once and fills at most one rectangle per pixel of
// a track: narrower bars share a pixel with their neighbours.
const rowHeight = 14, axisHeight = 18, kinds = 6;

// The last of `ends` that is not after `time`, plus one.
function firstAfter(ends, time) {
  let low = 0, high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] > time) high = middle; else low = middle + 1;
  }
  return low;
}

function unpack(flat) {
  const count = flat.length / 3;
  const track = {start: new Float64Array(count), end: new Float64Array(count),
                 label: new Int32Array(count)};
  for (let i = 0, time = 0; i < count; i++) {
    track.start[i] = time += flat[3 * i];
    track.end[i] = time += flat[3 * i + 1];
    track.label[i] = flat[3 * i + 2];
  }
  return track;
}

function duration(ns, digits = 4) {
  const [unit, word] = ns >= 1e9 ? [1e9, 's'] : ns >= 1e6 ? [1e6, 'ms'] : ns >= 1e3 ? [1e3, 'us'] : [1, 'ns'];
  return `${(ns / unit).toPrecision(digits).replace(/\.?0+$/, '')} ${word}`;
}

function timeline(place) {
  const data = JSON.parse(place.querySelector('script').textContent);
  const tracks = data.tracks.map(unpack);
  const names = place.querySelector('pre').textContent.split('\n');
  const canvas = document.createElement('canvas');
  canvas.tabIndex = 0;
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', 'timeline; + and - zoom, arrows move');
  place.querySelector('svg').replaceWith(canvas);
  place.querySelector('pre').append(' ');
  const height = tracks.length * rowHeight + axisHeight;
  canvas.style.height = height + 'px';
  let from = 0, to = data.end, width = 0, waiting = false;

  function draw() {
    waiting = false;
    width = canvas.clientWidth;
    if (!width) return;
    const ratio = Math.min(devicePixelRatio || 1, 2);
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const style = getComputedStyle(place);
    const colors = Array.from({length: kinds}, (_, k) => style.getPropertyValue('--k' + k));
    const pen = canvas.getContext('2d');
    pen.scale(ratio, ratio);
    const scale = width / (to - from);
    tracks.forEach((track, row) => {
      const y = row * rowHeight + 2;
      let column = -1, share = new Float64Array(kinds);
      const flush = () => {  // a pixel of many bars: its most frequent kind, as dense as it is full
        if (column < 0) return;
        let most = 0, sum = 0;
        for (let k = 0; k < kinds; k++) {
          sum += share[k];
          if (share[k] > share[most]) most = k;
        }
        pen.globalAlpha = Math.min(1, 0.25 + sum);
        pen.fillStyle = colors[most];
        pen.fillRect(column, y, 1, rowHeight - 4);
        pen.globalAlpha = 1;
        share.fill(0);
        column = -1;
      };
      for (let i = firstAfter(track.end, from); i < track.start.length && track.start[i] < to; i++) {
        const left = Math.max((track.start[i] - from) * scale, 0);
        const right = Math.min((track.end[i] - from) * scale, width);
        const kind = data.kinds[track.label[i]];
        if (right - left < 1.5) {
          if (Math.floor(left) !== column) {
            flush();
            column = Math.floor(left);
          }
          share[kind] += right - left;
        } else {
          flush();
          pen.fillStyle = colors[kind];
          pen.fillRect(left, y, right - left - (right - left > 4 ? 0.5 : 0), rowHeight - 4);
        }
      }
      flush();
    });
    // Ticks at 1, 2 or 5 times a power of ten.
    const rough = (to - from) / Math.max(2, width / 110), power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find(each => each * power >= rough);
    pen.fillStyle = style.getPropertyValue('--soft');
    pen.font = '10px system-ui, sans-serif';
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
      const x = (tick - from) * scale;
      pen.globalAlpha = 0.25;
      pen.fillRect(x, 0, 1, height - axisHeight);
      pen.globalAlpha = 1;
      if (x < width - 40) pen.fillText(tick ? duration(tick, Math.max(4, Math.ceil(Math.log10(tick / step)) + 1)) : '0', x + 2, height - 5);
    }
    canvas.dataset.from = from;
    canvas.dataset.to = to;
  }
  const redraw = () => {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  };
  // Keeps the window within the step and above 10 ns.
  function show(start, length) {
    length = Math.min(Math.max(length, 10), data.end);
    from = Math.min(Math.max(start, 0), data.end - length);
    to = from + length;
    redraw();
  }
  const zoom = (factor, at = 0.5) => show(from + at * (to - from) * (1 - factor), (to - from) * factor);
  const move = part => show(from + part * (to - from), to - from);

  const bar = document.createElement('div');
  bar.className = 'zoom';
  for (const [text, what, act] of [['+', 'in', () => zoom(0.5)], ['−', 'out', () => zoom(2)],
                                   ['whole step', 'reset', () => show(0, data.end)]]) {
    const button = document.createElement('button');
    button.textContent = text;
    button.dataset.zoom = what;
    button.onclick = act;
    bar.append(button);
  }
  bar.append('drag to move, Ctrl + wheel or double click to zoom');
  place.append(bar);
  canvas.onkeydown = event => {
    const act = {'+': () => zoom(0.5), '-': () => zoom(2), ArrowLeft: () => move(-0.2),
                 ArrowRight: () => move(0.2), Home: () => show(0, data.end)}[event.key];
    if (act) {
      act();
      event.preventDefault();
    }
  };
  canvas.addEventListener('wheel', event => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(1.002 ** event.deltaY, event.offsetX / width);
  }, {passive: false});
  canvas.ondblclick = event => zoom(0.25, event.offsetX / width);
  let held = null;
  canvas.onpointerdown = event => {
    held = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointerup = () => { held = null; };

  const tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  document.body.append(tip);
  canvas.onpointerleave = () => { tip.hidden = true; };
  canvas.onpointermove = event => {
    if (held !== null) {
      move((held - event.offsetX) / width);
      held = event.offsetX;
      return;
    }
    const track = tracks[Math.floor(event.offsetY / rowHeight)];
    const time = from + event.offsetX / width * (to - from), reach = (to - from) / width;
    const i = track ? firstAfter(track.end, time - reach) : 0;
    tip.hidden = !track || i >= track.start.length || track.start[i] > time + reach;
    if (tip.hidden) return;
    tip.textContent = `${data.labels[track.label[i]]}: ${duration(track.end[i] - track.start[i])} from ` +
        `${duration(track.start[i])} on ${names[Math.floor(event.offsetY / rowHeight)]}`;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = event.clientY + 14 + 'px';
  };
  new ResizeObserver(redraw).observe(canvas);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  redraw();
}

const seen = new IntersectionObserver(entries => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    seen.unobserve(entry.target);
    timeline(entry.target);
  }
}, {rootMargin: '200px'});
for (const place of document.querySelectorAll('.timeline:has(script)')) seen.observe(place);
