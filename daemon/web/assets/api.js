// Questions to the daemon. The token is a header, never a cookie: no other site can use it.

const KEY = 'gpuperf.token';

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;  // 0 = nobody answered
  }
}

// "/#token=…" brings a token along; the address is cleaned of it at once.
export function takeTokenOfAddress() {
  const found = location.hash.match(/^#token=([0-9a-f]+)/);
  if (!found) return;
  setToken(found[1]);
  history.replaceState(null, '', location.pathname);
}

export const setToken = (token) => sessionStorage.setItem(KEY, token.trim());
export const hasToken = () => Boolean(sessionStorage.getItem(KEY));

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, {
      ...options, cache: 'no-store', credentials: 'omit',
      headers: {Authorization: `Bearer ${sessionStorage.getItem(KEY) || ''}`},
    });
  } catch {
    throw new ApiError(0, 'gpuperfd does not answer');
  }
  const text = await response.text();
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new ApiError(response.status, `HTTP ${response.status}: ${text.slice(0, 200)}`);
  }
  if (!response.ok) throw new ApiError(response.status, answer.error || `HTTP ${response.status}`);
  return answer;
}

export const read = (what, parameters) => {
  const query = new URLSearchParams(parameters || {}).toString();
  return ask(`/api/v1/${what}${query ? '?' + query : ''}`, {method: 'GET'});
};

export const change = (what, request) => ask(`/api/v1/${what}`, {method: 'POST', body: JSON.stringify(request || {})});

// An address that shows a form of a capture without a token, for ten minutes.
export const linkView = async (id, format, more) => (await change('view_link', {id, format, ...more})).path;

export async function isServed(path) {
  try {
    return (await fetch(path, {method: 'HEAD', cache: 'no-store'})).ok;
  } catch {
    return false;
  }
}
