// What a browser adds to the pages: they stay current, and keys work. Nothing depends on it.
'use strict';
(() => {
  const body = document.body;
  const base = body.dataset.base;
  const main = document.getElementById('main');
  const state = document.getElementById('live');
  const least = 2000; // ms between two fetches of a page
  const poll = 5000; // ms, while there is no stream
  let paused = false;
  let stream = null;
  let timer = 0;
  let last = Date.now();
  let fetching = false;

  const say = (text) => { if (state && state.textContent !== text) state.textContent = text; };

  // A form that somebody has begun to fill in stays as it is.
  main.addEventListener('input', (e) => e.target.form?.setAttribute('data-touched', ''));
  main.addEventListener('toggle', (e) => e.target.toggleAttribute('data-toggled', true), true);

  const callbacks = {
    beforeNodeMorphed: (old, fresh) => {
      if (old.nodeType !== 1) return true;
      if (old.hasAttribute('data-touched') || old.hasAttribute('data-keep')) return false;
      if (old.tagName === 'DETAILS' && old.hasAttribute('data-toggled')) {
        fresh.toggleAttribute('open', old.open);
        fresh.setAttribute('data-toggled', '');
      }
      if (old.tagName === 'INPUT' && old.type === 'checkbox' && old.checked) fresh.setAttribute('checked', '');
      if (old.classList.contains('at')) fresh.classList.add('at');
      return true;
    },
  };

  // What the running call of the job on this page writes, as text.
  const mostShown = 64 << 10; // characters: the latest
  let call = '';
  let end = 0; // bytes of the answer that were seen
  let text = '';
  function write(delta) {
    if (delta.call !== call || delta.offset === 0) { call = delta.call; end = 0; text = ''; }
    if (delta.offset < end) return; // it came again
    if (delta.offset > end) text += '\n[…]\n'; // a part was lost
    end = delta.end;
    text += delta.text;
    if (text.length > mostShown) text = '[…]\n' + text.slice(text.length - mostShown / 2);
    showWritten();
  }
  function showWritten() {
    const place = document.getElementById('written');
    if (!place || !text) return;
    const pre = place.querySelector('pre');
    const follows = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4;
    pre.textContent = text;
    place.querySelector('.note').textContent = `By the call of attempt ${call}, while it runs. Only the result is stored.`;
    place.hidden = false;
    if (follows) pre.scrollTop = pre.scrollHeight;
  }

  let again = false; // something changed while the page was fetched

  async function refresh() {
    if (paused || document.hidden) return;
    if (fetching) { again = true; return; } // this change may be younger than what is fetched
    fetching = true;
    let failed = false;
    try {
      // Payloads that the page has stay, so the server need not read them again.
      const kept = [...main.querySelectorAll('.payload[data-keep]')].map((e) => e.id).join(' ');
      const answer = await fetch(location.href, { headers: { 'X-Refresh': kept || '1' }, redirect: 'error' });
      if (answer.status === 401) { location.reload(); return; }
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const fresh = page.getElementById('main');
      if (fresh) {
        // Its children, for an element of the same id would be moved into itself.
        Idiomorph.morph(main, fresh.childNodes, { morphStyle: 'innerHTML', ignoreActiveValue: true, callbacks });
        decorate();
        showWritten();
      }
      document.title = page.title || document.title;
      say(stream?.readyState === 1 ? 'Live' : 'Live, by polling');
    } catch {
      failed = true;
      say('No connection: what you see may be old');
    } finally {
      fetching = false;
      last = Date.now();
      if (again || failed) soon(again && !failed ? 0 : poll);
      again = false;
    }
  }

  function soon(delay) {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      timer = 0;
      await refresh();
      if (stream?.readyState !== 1) soon(poll);
    }, Math.max(delay, least - (Date.now() - last)));
  }

  function open() {
    if (!body.dataset.live || paused || document.hidden || stream) return;
    const address = new URL(body.dataset.live, location.href);
    address.searchParams.set('page', location.pathname.slice(base.length));
    stream = new EventSource(address);
    stream.addEventListener('open', () => say('Live'));
    stream.addEventListener('change', () => soon(0));
    stream.addEventListener('delta', (e) => write(JSON.parse(e.data)));
    stream.addEventListener('ended', () => location.reload());
    // The browser tries again by itself, and says so each time. Until it succeeds the page polls.
    stream.addEventListener('error', () => { if (!timer) soon(poll); });
  }

  function close() {
    stream?.close();
    stream = null;
    clearTimeout(timer);
    timer = 0;
  }

  function pause(on) {
    paused = on;
    close();
    if (on) { say('Paused ( r )'); return; }
    open();
    soon(0);
  }

  if (body.dataset.live) {
    open();
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) close(); else if (!paused) { open(); soon(0); }
    });
  }

  // Copy buttons, where the browser lets a page write to the clipboard or select.
  function decorate() {
    for (const block of main.querySelectorAll('pre[data-copy]:not([data-done])')) {
      block.dataset.done = '';
      const button = document.createElement('button');
      button.type = 'button';
      button.className = 'copy';
      button.textContent = 'Copy';
      button.addEventListener('click', async () => {
        const text = block.textContent;
        try { await navigator.clipboard.writeText(text); } catch {
          const area = document.createElement('textarea');
          area.value = text;
          body.append(area);
          area.select();
          document.execCommand('copy');
          area.remove();
        }
        button.textContent = 'Copied';
      });
      block.before(button);
    }
    for (const box of main.querySelectorAll('input[data-all]:not([data-done])')) {
      box.dataset.done = '';
      box.hidden = false;
      box.addEventListener('change', () => {
        for (const other of box.closest('table').querySelectorAll('tbody input[type=checkbox]')) other.checked = box.checked;
      });
    }
  }
  decorate();

  // On a narrow page the menu is closed at first.
  if (matchMedia('(max-width: 46rem)').matches) document.querySelector('.menu')?.removeAttribute('open');

  // Keys.
  const help = document.getElementById('keys');
  const showKeys = document.getElementById('show-keys');
  if (showKeys) {
    showKeys.hidden = false;
    showKeys.addEventListener('click', () => help.showModal());
  }
  let went = 0; // when g was pressed
  function move(by) {
    const rows = [...main.querySelectorAll('tbody tr')].filter((r) => r.querySelector('a'));
    if (!rows.length) return;
    const at = rows.findIndex((r) => r.classList.contains('at'));
    rows[at]?.classList.remove('at');
    const row = rows[Math.min(rows.length - 1, Math.max(0, at + by))];
    row.classList.add('at');
    row.querySelector('a').focus({ preventScroll: true });
    row.scrollIntoView({ block: 'nearest' });
  }
  document.addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input, select, textarea, dialog')) {
      if (e.key === 'Escape') e.target.blur?.();
      return;
    }
    if (Date.now() - went < 1500) {
      went = 0;
      const link = document.querySelector(`a[data-key="${CSS.escape(e.key)}"]`);
      if (link) { e.preventDefault(); location.assign(link.href); }
      return;
    }
    switch (e.key) {
      case '/': e.preventDefault(); document.getElementById('find')?.focus(); break;
      case 'g': went = Date.now(); break;
      case 'j': move(1); break;
      case 'k': move(-1); break;
      case 'x': { const box = main.querySelector('tr.at input[type=checkbox]'); if (box) box.checked = !box.checked; break; }
      case 'r': if (body.dataset.live) pause(!paused); break;
      case '?': help?.showModal(); break;
    }
  });
})();
