// The log-in: credentials go to the node once, in the body of a request, and the browser keeps a cookie that no script reads.

function loginForm(session, done) {
  const ways = session.schemes.filter((scheme) => scheme !== 'certificate');
  if (session.viewer || !ways.length) {
    const why = session.viewer ? [h('bdi', {}, session.viewer), ' may look at nothing of this node. Its access lists say who may: the rights are inspect, operate and approve.'] : 'This node asks for a client certificate, and this browser has shown none that it knows.';
    return h('div', { class: 'login' }, h('h2', {}, 'Not allowed'), h('p', {}, why), session.viewer ? button('Log in as somebody else', async () => { await asked('DELETE').catch(() => null); done(); }) : null);
  }
  const name = h('input', { id: 'login-name', autocomplete: 'username', autocapitalize: 'none', spellcheck: 'false', maxlength: '256' });
  const password = h('input', { id: 'login-password', type: 'password', autocomplete: 'current-password', maxlength: '4096' });
  const token = h('input', { id: 'login-token', type: 'password', autocomplete: 'off', spellcheck: 'false', maxlength: '12000' });
  const field = (input, label) => h('p', { class: 'field' }, h('label', { for: input.id }, label), input);
  const parts = { basic: h('div', {}, field(name, 'Name'), field(password, 'Password')), bearer: h('div', {}, field(token, 'Token')) };
  let way = ways[0];
  const note = h('p', { class: 'bad', role: 'alert' }), enter = h('button', { type: 'submit', class: 'main' }, 'Log in');
  const tabs = ways.map((one) => button(one === 'basic' ? 'Name and password' : 'Token', () => choose(one), { 'aria-pressed': 'false' }));
  const choose = (one) => {
    way = one;
    ways.forEach((each, n) => { parts[each].hidden = each !== way; tabs[n].setAttribute('aria-pressed', String(each === way)); });
  };
  const submit = async (event) => {
    event.preventDefault();
    enter.disabled = true;
    put(note, '');
    try {
      await asked('POST', way === 'basic' ? { name: name.value, password: password.value } : { token: token.value });
      password.value = token.value = '';
      done();
    } catch (problem) {
      password.value = token.value = '';
      put(note, problem.status === 429 ? `Too many attempts. Try again in ${seconds(problem.wait || 1)}.` : problem.status === 403 ? 'That is not accepted.' : problem.status ? problem.message : 'The node does not answer.');
      (way === 'basic' ? password : token).focus();
    }
    enter.disabled = false;
  };
  choose(way);
  return h('div', { class: 'login' }, h('h2', {}, 'Log in'), h('p', { class: 'quiet' }, 'This node shows itself to those who run it.'),
    h('form', { onsubmit: submit }, tabs.length > 1 ? h('p', { class: 'tools' }, tabs) : null, ways.map((one) => parts[one]), note, h('p', {}, enter)));
}
