// Requests to the server that gave this page; its token is in the page's own address.

const base = new URL(".", location.href).pathname;

export class Refused extends Error {}

export async function get(path, params = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null && one !== "") query.append(name, one);
  }
  const text = query.toString();
  let answer;
  try {
    answer = await fetch(`${base}api/${path}${text ? `?${text}` : ""}`, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("the server does not answer; is `rollwright view` still running?");
  }
  const value = await answer.json();
  if (!answer.ok) throw new Refused(value.error ?? `the server answered ${answer.status}`);
  return value;
}
