// Operations on what is shown: each is asked once more, in words that say what it does.

const OPERATIONS = {
  restart: { label: 'Restart', asks: 'Restart', about: 'It ends as in a crash, and its supervisor starts it anew. What it holds in memory is lost; what waits in its mailbox stays.', danger: true },
  stop: { label: 'Stop', asks: 'Stop', about: 'It ends in order, and is not started again. Messages to it become dead letters.', danger: true },
  hold: { label: 'Hold', asks: 'Hold', about: 'It takes messages in and begins none, until it is released.' },
  release: { label: 'Release', asks: 'Release', about: 'It goes on with what waits.' },
  drain: { label: 'Drain the node', asks: 'Drain the node', about: 'It takes no more requests over the network, answers those that are open, and closes all connections: this one too.', danger: true },
};

// The buttons for one place. `may` are the operations that there are.
function operationButtons(page, path, may, told) {
  return may.filter((what) => OPERATIONS[what]).map((what) => button(OPERATIONS[what].label, () => operate(page, what, path, told), { 'data-what': what }));
}

async function operate(page, what, path, told) {
  if (!await confirmed(what, path)) return;
  try {
    told(`${OPERATIONS[what].label}: ${await page.wire.do(what, path)}.`, false);
  } catch (problem) {
    told(problem.message, true);
  }
}

function confirmed(what, path) {
  const { asks, about, danger } = OPERATIONS[what];
  return new Promise((answer) => {
    const dialog = h('dialog', { class: 'confirm', 'aria-labelledby': 'confirm-title', onclose: () => { dialog.remove(); answer(dialog.returnValue === 'yes'); } },
      h('h2', { id: 'confirm-title' }, asks, path && what !== 'drain' ? [' ', h('bdi', {}, cut(path, 200))] : null, '?'), h('p', {}, about),
      h('p', { class: 'tools' }, button('Cancel', () => dialog.close('no'), { autofocus: true }), button(asks, () => dialog.close('yes'), { class: danger ? 'main danger' : 'main' })));
    document.body.append(dialog);
    dialog.showModal();
  });
}
