#!/usr/bin/env python3
"""Opens report pages in a real browser and uses them: no error in the console, the numbers are
those of the JSON, sorting sorts, zooming zooms, the tooltip speaks, nothing is cut at four widths,
text stands out, light and dark, and the answer comes first.

    tests/browser/report.py PARSIM     exit code 77 (skipped) if there is no browser

Speaks WebDriver over HTTP with chromedriver; needs nothing but Python's own library.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

sys.dont_write_bytecode = True  # the tree stays as it is
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from checking import check, failed

CLUSTER = 'star:4,device=p100-sxm2*2+v100-sxm2*2,rate=12GB/s,latency=1us'
QUESTION = ['--network', 'alexnet', '--cluster', CLUSTER, '--no-timings']
FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
         '--disable-background-networking', '--disable-component-update', '--disable-sync',
         '--disable-dev-shm-usage', '--window-size=1200,900']


class Browser:
    def __init__(self, driver, chromium, profile):
        self.process = subprocess.Popen([driver, '--port=0'], stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            started = re.search(r'started successfully on port (\d+)', line)
            if started:
                self.root = 'http://127.0.0.1:' + started.group(1)
                break
        options = {'binary': chromium, 'args': FLAGS + ['--user-data-dir=' + profile]}
        self.session = ''
        answer = self.call('POST', '/session', {'capabilities': {'alwaysMatch': {
            'goog:chromeOptions': options, 'goog:loggingPrefs': {'browser': 'ALL'}}}})
        self.session = '/session/' + answer['sessionId']

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, data, method=method)
        # No proxy of the surroundings stands between us and our own machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)['value']

    def open(self, path):
        self.call('POST', self.session + '/url', {'url': pathlib.Path(path).as_uri()})

    def run(self, script):
        return self.call('POST', self.session + '/execute/sync', {'script': script, 'args': []})

    def settle(self):
        """Waits until two frames were drawn."""
        self.call('POST', self.session + '/execute/async', {'args': [], 'script':
                  'requestAnimationFrame(() => requestAnimationFrame(() => arguments[0]()))'})

    def devtools(self, command, parameters):
        return self.call('POST', self.session + '/goog/cdp/execute',
                         {'cmd': command, 'params': parameters})

    def errors(self):
        entries = self.call('POST', self.session + '/se/log', {'type': 'browser'})
        return [entry['message'] for entry in entries if entry['level'] in ('SEVERE', 'WARNING')]

    def resize(self, width, height):
        self.call('POST', self.session + '/window/rect', {'width': width, 'height': height})

    def close(self):
        try:
            self.call('DELETE', self.session)
        finally:
            self.process.terminate()
            self.process.wait()


def column(browser, number):
    return browser.run(f"return [...document.querySelector('table.sortable').querySelectorAll('tbody tr')]"
                       f".map(row => row.cells[{number}].dataset.v ?? row.cells[{number}].textContent)")


def titles_of(browser):
    """Of the columns, without units."""
    return browser.run("return [...document.querySelector('table.sortable').querySelectorAll('th')]"
                       ".map(cell => cell.textContent.split(' [')[0])")


def check_numbers(browser, results):
    rows = browser.run("return [...document.querySelector('table.sortable').querySelectorAll('tbody tr')]"
                       ".map(row => [...row.cells].map(cell => cell.dataset.v ?? cell.textContent))")
    titles = titles_of(browser)
    check(len(rows) == len(results), 'a row for every strategy')
    for row, result in zip(rows, results):
        check(row[0] == result['strategy'], f'{row[0]} stands where the JSON has it')
        for title, key in (('step', 'step_time_s'), ('samples/s', 'throughput_samples_per_s')):
            check(float(row[titles.index(title)]) == result[key], f'{row[0]}: {key}')
    bars = browser.run("return [...document.querySelectorAll('.steps > svg.step')]"
                       ".map(s => s.previousElementSibling.textContent.replace('★ ', ''))")
    check(bars == [result['strategy'] for result in results], 'a bar for every strategy')
    # The first bar's segments are to scale: compute over the step.
    widths = browser.run("return [...document.querySelector('.steps svg.step').querySelectorAll('rect')]"
                         ".map(rect => rect.getBoundingClientRect().width)")
    devices = [d for d in results[0]['devices'] if d['memory_bytes'] > 0]
    compute = sum(d['compute_s'] for d in devices) / len(devices) / results[0]['step_time_s']
    check(abs(widths[0] / sum(widths) - compute) < 0.01, 'the bar shows the share of compute')


def check_sorting(browser):
    def click(number):
        browser.run(f"document.querySelectorAll('table.sortable th button')[{number}].click()")
    rate = titles_of(browser).index('samples/s')
    click(rate)
    rates = [float(value) for value in column(browser, rate)]
    check(rates == sorted(rates), 'a click sorts by samples/s')
    click(rate)
    check([float(value) for value in column(browser, rate)] == sorted(rates, reverse=True),
          'a second click turns the order round')
    order = browser.run(f"return document.querySelectorAll('table.sortable th')[{rate}].ariaSort")
    check(order == 'descending', 'the order is said to those who cannot see it')
    click(0)
    names = column(browser, 0)
    check(names == sorted(names), 'a click sorts by name')


def check_timeline(browser, step):
    browser.run("document.querySelector('.timeline').scrollIntoView()")
    browser.settle()
    browser.settle()
    canvas = "document.querySelector('.timeline canvas')"

    def window():
        browser.settle()
        return browser.run(f'return [Number({canvas}.dataset.from), Number({canvas}.dataset.to)]')
    whole = window()
    check(whole[0] == 0 and abs(whole[1] - step * 1e9) < 1, 'the timeline shows the whole step')
    inked = browser.run(f"const c = {canvas}, d = c.getContext('2d').getImageData(0, 0, c.width, 14).data;"
                        "let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n / d.length * 4")
    check(inked > 0.3, f'the first track is drawn ({inked:.2f} of it)')
    zoom = "document.querySelector('.timeline [data-zoom={}]').click()"
    browser.run(zoom.format('in'))
    nearer = window()
    check(abs((nearer[1] - nearer[0]) / (whole[1] - whole[0]) - 0.5) < 1e-9, '+ halves the window')
    check(abs(sum(nearer) - sum(whole)) < 1, '+ keeps the middle')
    browser.run(f"{canvas}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'ArrowRight'}}))")
    check(window()[0] > nearer[0], 'an arrow moves the window')
    for _ in range(60):
        browser.run(zoom.format('in'))
    deep = window()
    check(9.9 < deep[1] - deep[0] < 10.1, 'zooming ends at 10 ns')
    browser.run(zoom.format('reset'))
    check(window() == whole, 'the button shows the whole step again')
    place = browser.run(f'const r = {canvas}.getBoundingClientRect(); return [r.left, r.top, r.width]')
    spans = browser.run("const d = JSON.parse(document.querySelector('.timeline script').textContent);"
                        "return [d.tracks[0], d.labels, d.end]")
    # The longest bar of the first track, hit in its middle.
    time, best = 0, (0, 0, 0)
    for gap, length, label in zip(*[iter(spans[0])] * 3):
        time += gap
        best = max(best, (length, time + length / 2, label))
        time += length
    x = int(place[0] + best[1] / spans[2] * place[2])
    browser.devtools('Input.dispatchMouseEvent', {'type': 'mouseMoved', 'x': x, 'y': place[1] + 7})
    browser.settle()
    tip = browser.run("const t = [...document.querySelectorAll('.tip')].find(t => !t.hidden);"
                      "return t ? t.textContent : ''")
    check(tip.startswith(spans[1][best[2]] + ': '), f'the tooltip names the bar: {tip!r}')


# What is wider than its place, and not to be scrolled.
CUT = """
const wide = [], width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width) wide.push('the page: ' + document.documentElement.scrollWidth);
for (const each of document.querySelectorAll('header *, main *')) {
  if (each.closest('.scroll') || each.closest('details:not([open]) > :not(summary)')) continue;
  if (each.closest('svg.step, svg.bar') && each.tagName !== 'text') continue;
  const place = each.getBoundingClientRect();
  if (place.width === 0) continue;
  const hidden = ['hidden', 'clip'].includes(getComputedStyle(each).overflowX) && each.tagName !== 'svg';
  if (place.right > width + 1 || place.left < -1 || hidden && each.scrollWidth > each.clientWidth + 1) {
    wide.push(`${each.tagName}.${each.className.baseVal ?? each.className}: ${each.textContent.slice(0, 40)}`);
  }
}
return wide;
"""
# Text whose contrast to what lies below it is less than 4.5 to 1 (WCAG 2.1, success criterion 1.4.3).
FAINT = """
const numbers = text => text.match(/[\\d.]+/g).map(Number);
const light = color => {
  const [r, g, b] = numbers(color).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const faint = [];
for (const each of document.querySelectorAll('body *')) {
  if (each.closest('script, style, title')) continue;
  if (![...each.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
  const style = getComputedStyle(each);
  let below = each;
  while (below && numbers(getComputedStyle(below).backgroundColor)[3] === 0) below = below.parentElement;
  const back = light(below ? getComputedStyle(below).backgroundColor : 'rgb(255, 255, 255)');
  const ink = light(each.closest('svg') ? style.fill : style.color);
  const ratio = (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05);
  if (ratio < 4.5) faint.push(`${each.tagName}.${each.className.baseVal ?? each.className} ${ratio.toFixed(1)}`);
}
return [...new Set(faint)];
"""
ORDER = ['Why it takes', 'What the words mean', 'Plans', 'All numbers', 'Scaling', 'How sure', 'Command']


def check_looks(browser):
    """At four widths, light and dark."""
    def scheme(name):
        browser.devtools('Emulation.setEmulatedMedia',
                         {'features': [{'name': 'prefers-color-scheme', 'value': name}]})
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    grounds = set()
    for name in ('light', 'dark'):
        scheme(name)
        browser.settle()
        grounds.add(browser.run("return getComputedStyle(document.body).backgroundColor"))
        faint = browser.run(FAINT)
        check(not faint, f'text stands out from its ground, {name}: {faint}')
    check(len(grounds) == 2, f'dark is dark: {grounds}')
    scheme('light')
    for width in (390, 768, 1280, 2560):
        browser.devtools('Emulation.setDeviceMetricsOverride',
                         {'width': width, 'height': 800, 'deviceScaleFactor': 1, 'mobile': False})
        browser.settle()
        browser.settle()
        cut = browser.run(CUT)
        check(not cut, f'nothing is cut at {width} pixels: {cut[:5]}')
        memory = browser.run("const cell = document.querySelector('.cards td[data-t=memory]').getBoundingClientRect();"
                             "return cell.width > 0 && cell.left >= 0 && cell.right <= innerWidth")
        check(memory, f'the memory of a plan is seen at {width} pixels')
    titles = browser.run("return [...document.querySelectorAll('h2')].map(title => title.textContent)")
    check(len(titles) == len(ORDER) and all(title.startswith(begin) for title, begin in zip(titles, ORDER)),
          f'sections are in order: {titles}')
    above = browser.run("const y = query => document.querySelector(query).getBoundingClientRect().top;"
                        "return y('.answer') < y('.brief') && y('.brief') < y('.strategy')")
    check(above, 'the answer is above everything')
    browser.devtools('Emulation.clearDeviceMetricsOverride', {})


def check_filter(browser):
    typed = ("const field = document.querySelector('.filter'); field.value = '{}';"
             "field.dispatchEvent(new Event('input'));"
             "return [...document.querySelector('.cards').querySelectorAll('tbody tr')].filter(row => !row.hidden).length")
    every = browser.run(typed.format(''))
    some = browser.run(typed.format('pipeline'))
    check(every > 1 and some == 1, f'a word leaves the rows that have it: {some} of {every}')
    check(browser.run(typed.format('')) == every, 'no word leaves all rows')


def check_validation(browser, rows):
    dots = browser.run("return document.querySelectorAll('svg.scaling circle').length")
    check(dots == len(rows), 'a dot for every row of a validation')
    check(rows[0]['case'] in browser.run("return document.querySelector('circle title').textContent"),
          'a dot says what it is')
    names = browser.run("return document.querySelector('.timeline pre').textContent").split('\n')
    check(names[0].endswith('predicted') and names[1].endswith('measured'),
          f'every track stands above its measured twin: {names[:2]}')
    timelines = browser.run("return document.querySelectorAll('.timeline').length")
    check(timelines == len(rows), 'a pair of timelines for every row')
    check_timeline(browser, browser.run(
        "return JSON.parse(document.querySelector('.timeline script').textContent).end") / 1e9)


def main():
    program = sys.argv[1]
    driver = shutil.which('chromedriver')
    chromium = shutil.which('chromium') or shutil.which('google-chrome')
    if not driver or not chromium:
        print('SKIPPED: browser; ./test --browser installs chromium and chromium-driver')
        return 77
    with tempfile.TemporaryDirectory() as folder:
        def parsim(words):
            done = subprocess.run([program] + words, capture_output=True, text=True, cwd=folder)
            if done.returncode != 0:
                sys.exit(f'parsim {" ".join(words)}: exit code {done.returncode}\n{done.stderr}')
            return done.stdout
        results = json.loads(parsim(['compare'] + QUESTION +
                                    ['--json', '--report', 'page.html', '--scaling', '1,2,4']))['results']
        hostile = '<script>document.title = "taken"</script>'
        pathlib.Path(folder, 'hostile.toml').write_text(
            f"name = '{hostile}'\n[[nodes]]\nname = 'a\"b'\nswitches = ['</svg>']\n"
            "devices = [{ model = 't4', count = 2 }]\n[[nodes.links]]\na = 'gpu*'\nb = '</svg>'\n"
            "rate = '12 GB/s'\nlatency = '1 us'\n")
        parsim(['simulate', '--network', 'mlp', '--cluster', 'hostile.toml', '--strategy', 'data',
                '--report', 'hostile.html'])
        rows = json.loads(parsim(['validate', '--hw', '--hw-backend', 'host', '--hw-partition', '64,32',
                                  '--network', 'lenet5', '--strategy', 'data', '--strategy',
                                  'pipeline', '--report', 'validation.html', '--json']))['rows']
        # All strategies on eight devices, without timelines.
        parsim(['compare', '--network', 'resnet50', '--cluster', 'mixed-p100-v100', '--report',
                'small.html', '--no-timeline'])
        size = pathlib.Path(folder, 'small.html').stat().st_size
        check(size < 60_000, f'a page without timelines is below 60 kB ({size})')
        browser = Browser(driver, chromium, folder + '/profile')
        try:
            browser.open(folder + '/page.html')
            check(browser.run('return document.title').startswith('alexnet on star:4'),
                  'the page has its title')
            check_numbers(browser, results)
            check_sorting(browser)
            check_filter(browser)
            fastest = next(result for result in results if result['fits'])
            check_timeline(browser, fastest['step_time_s'])
            check_looks(browser)
            curves = browser.run("return document.querySelectorAll('.scaling path.curve').length")
            check(curves == len(results), 'a curve for every strategy')
            browser.open(folder + '/hostile.html')
            title = browser.run('return document.title')
            check(title.startswith('mlp on ' + hostile[:30]), f'a hostile name is only text: {title}')
            links = browser.run("return [...document.querySelectorAll('.links tbody tr')]"
                                ".map(row => row.textContent)")
            browser.devtools('Emulation.setDeviceMetricsOverride',
                             {'width': 390, 'height': 800, 'deviceScaleFactor': 1, 'mobile': False})
            browser.settle()
            cut = browser.run(CUT)
            check(not cut, f'hostile names are not cut at 390 pixels: {cut[:5]}')
            browser.devtools('Emulation.clearDeviceMetricsOverride', {})
            check(len(links) == 1 and '</svg>' in links[0],
                  f'the links of a cluster with hostile names are whole: {links}')
            browser.open(folder + '/validation.html')
            check_validation(browser, rows)
            errors = browser.errors()
            check(not errors, f'the console is empty: {errors}')
        finally:
            browser.close()
    print(f'browser: {len(failed)} failed' if failed else 'browser: ok')
    return bool(failed)


if __name__ == '__main__':
    sys.exit(main())
