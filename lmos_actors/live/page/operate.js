// Operations on a place that is shown: each is confirmed first, in words that say what it does.

// `as` is the node's name of the operation, if the page has another one.
const OPERATIONS = {
  restart: { label: 'Restart', about: 'It is stopped, within its time for that, and started again. What it keeps in memory alone is lost.', danger: true },
  start: { label: 'Start', as: 'restart', about: 'It was stopped, and is started again.' },
  stop: { label: 'Stop', about: 'It is stopped, and stays in the tree: it can be started again, unless it is temporary.', danger: true },
  hold: { label: 'Hold', about: 'It is paused: it goes on taking messages in and begins none, over restarts too, until it is released.' },
  release: { label: 'Release', about: 'It goes on with what waits.' },
  roll: { label: 'Roll', about: 'Its processes are replaced one after another: the next one follows once the new one is ready.' },
  drain: { label: 'Drain the node', about: 'It takes no more requests and connections, answers those that are open, and its agents go on. This page loses its connection, too.', danger: true },
};

// The buttons for one place. `may` are the operations that are allowed there.
function operationButtons(page, path, may, told) {
  return may.filter((what) => OPERATIONS[what]).map((what) => button(OPERATIONS[what].label, () => operate(page, what, path, told), { 'data-what': what }));
}

// `own` has other words for the place, and for what the operation does.
async function operate(page, what, path, told, own = {}) {
  const { label, about, danger } = OPERATIONS[what], name = own.name || path;
  if (!await confirmed(label, name && what !== 'drain' ? h('bdi', {}, cut(name, 200)) : null, h('p', {}, own.about || about), danger)) return;
  try {
    const outcome = await page.wire.do(OPERATIONS[what].as || what, path, (text) => told(`${label}: ${text}…`, false));
    told(/^(re)?(start|leas|stopp|held)/.test(outcome) ? `${outcome.charAt(0).toUpperCase()}${outcome.slice(1)}.` : `${label}: ${outcome}.`, false);
  } catch (problem) {
    told(problem.message, true);
  }
}

// Asks for confirmation: a promise of the answer. `about` says what the operation does, and to what.
function confirmed(asks, name, about, danger) {
  return new Promise((answer) => {
    const dialog = h('dialog', { class: 'confirm', 'aria-labelledby': 'confirm-title', onclose: () => { dialog.remove(); answer(dialog.returnValue === 'yes'); } },
      h('h2', { id: 'confirm-title' }, asks, name ? [' ', name] : null, '?'), about,
      h('p', { class: 'tools' }, button('Cancel', () => dialog.close('no'), { autofocus: true }), button(asks, () => dialog.close('yes'), { class: danger ? 'main danger' : 'main' })));
    document.body.append(dialog);
    dialog.showModal();
  });
}
