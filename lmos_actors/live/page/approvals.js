// The questions of agents that this viewer may decide. The agent `approvals` takes the answers, over HTTP; on the page of a
// deployment the launcher passes them on to the `approvals` of the process whose agent asks.

// Whether a question still waits although no run of its agent waits for it any more.
const isLeft = (row) => row.state === 'waiting' && row.awaited === false;

const toldAt = (card) => card.querySelector('.told');

class ApprovalView {
  constructor(page) {
    this.page = page;
    this.cards = new Map();
    this.note = h('p', { class: 'quiet', role: 'status' }, 'Asking…');
    this.list = h('div', { class: 'cards' });
    this.apart = h('ul', { class: 'quiet', 'aria-label': 'Not in this list' });
    this.element = h('div', { class: 'listview' }, h('p', { class: 'about quiet' }, 'What agents wait for: somebody has to decide.'), this.note, this.list, this.apart);
  }

  begin() { this.page.wire.look('list', 'approvals', {}, (state) => this.draw(state), refusedIn(this.note)); }

  end() { this.page.wire.leave('list'); }

  focus() { this.element.focus(); }

  draw(state) {
    const order = state.order || [];
    for (const [id, card] of this.cards) if (!order.includes(id)) { card.remove(); this.cards.delete(id); }
    for (const id of order) {
      const row = state.rows[id], card = this.cards.get(id);
      if (card && card.dataset.state === row.state) { card.querySelector('.unawaited').hidden = !isLeft(row); continue; } // what is typed stays
      const fresh = this.card(row, id);
      if (card) { card.replaceWith(fresh); put(toldAt(fresh), toldAt(card).textContent); } // it says there who was too late
      this.cards.set(id, fresh);
    }
    inOrder(this.list, order.map((id) => this.cards.get(id)));
    this.note.hidden = order.length > 0;
    put(this.note, 'Nothing waits for you.');
    const apart = Object.entries(state.apart || {}), more = state.left_out ? [['', `${state.left_out} more process${state.left_out === 1 ? '' : 'es'}: see their own pages`]] : [], text = JSON.stringify([apart, more]);
    if (this.told === text) return;
    this.told = text;
    this.apart.replaceChildren(...[...apart, ...more].map(([name, why]) => h('li', {}, 'Not in this list: ', isolated(name), ' ', isolated(why), '.')));
  }

  // Gives an answer; returns the outcome in words. `answer` is JSON text, '' for none.
  async answer(row, id, what, note, answer) {
    const { wire } = this.page;
    if (row.process !== undefined) return `${cut(await wire.do(what, `groups/${id}`, () => {}, { note, answer }), 2_000)}.`;
    await callsWith('approvals', what, `{"id": ${JSON.stringify(row.id)}, "note": ${JSON.stringify(note)}${answer ? `, "answer": ${answer}` : ''}}`);
    return what === 'approve' ? 'Approved.' : 'Refused.';
  }

  card(row, id) {
    const waits = row.state === 'waiting', note = h('input', { type: 'text', maxlength: '1000', 'aria-label': 'A note to the answer', placeholder: 'note' });
    const told = h('p', { class: 'quiet told', role: 'status' }), tell = (text) => put(this.cards.has(id) ? toldAt(this.cards.get(id)) : told, text), buttons = h('p', { class: 'tools' }), form = waits && row.form ? new Fields(row.form, isState(row.form.properties) ? null : 'answer') : null;
    const decide = async (what) => {
      let answer = '';
      try { answer = form && what === 'approve' ? form.read(true) : ''; } catch (wrong) { put(told, wrong.message); return; }
      const about = [question(), answer ? h('pre', { class: 'raw' }, cut(pretty(answer), 2_000)) : null, note.value ? h('p', {}, 'Note: ', isolated(note.value)) : null];
      if (!await confirmed(what === 'approve' ? 'Approve' : 'Refuse', null, about, what === 'approve')) return;
      for (const one of buttons.querySelectorAll('button')) one.disabled = true;
      try {
        tell(await this.answer(row, id, what, note.value, answer));
      } catch (problem) {
        tell(problem.message);
        for (const one of buttons.querySelectorAll('button')) one.disabled = false;
      }
    };
    const data = () => (row.data !== undefined ? h('div', { class: 'data' }, drawField(row.data)) : null);
    const question = () => [h('p', {}, isolated(row.agent), row.process ? [' of ', isolated(row.process)] : null, ' asks: ', h('strong', {}, isolated(cut(row.text || '', 2_000)))), data()];
    if (waits) buttons.append(note, row.form_left_out ? '' : button('Approve…', () => decide('approve'), { class: 'main' }), button('Refuse…', () => decide('refuse')));
    const facts = { ...(row.process ? { process: row.process } : {}), agent: row.agent, key: row.key, asked: row.asked, expires: row.expires, ...(row.earlier ? { granted_before: row.earlier } : {}), ...(row.former !== undefined ? { instead_of: row.former } : {}), ...(row.decided ? { decided: row.decided } : {}), ...(row.by ? { by_whom: row.by } : {}), ...(row.note ? { note: row.note } : {}), ...(row.answer ? { answer: row.answer } : {}) };
    return h('article', { class: 'card', 'data-state': row.state }, h('h3', {}, isolated(cut(row.text || '', 2_000)), ' ', h('span', { class: `state ${waits ? 'starting' : row.state === 'approved' ? 'running' : 'crashed'}` }, row.state)), data(),
      h('dl', { class: 'facts' }, Object.entries(facts).filter(([, value]) => value !== undefined && value !== null && value !== '').map(([name, value]) => h('div', {}, h('dt', {}, words(name)), h('dd', {}, drawValue(name, value, row.process ? undefined : (path) => this.page.openAgent(path)))))),
      form ? h('div', { class: 'use' }, form.element) : null, h('p', { class: 'quiet unawaited', hidden: !isLeft(row) }, 'No call waits for it now: an answer is kept, and counts when the agent asks again.'), row.form_left_out ? h('p', { class: 'quiet' }, 'To approve it takes an answer by a form that is too long for this page.') : null, buttons, told);
  }
}
