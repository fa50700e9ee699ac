// Everything that a page shows stands in the address behind the #, so that any view can be sent as a link.

export function parse(hash = location.hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts, query: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function link(parts, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(kept).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(parts, query = {}) {
  location.hash = link(parts, query);
}

// Change the address without loading the page again.
export function note(changes) {
  const { parts, query } = parse();
  history.replaceState(null, "", link(parts, { ...query, ...changes }));
}

export const rolloutParts = (run, row) => ["run", run, "rollout", row.kind, row.step, row.group_index, row.index];
export const groupParts = (run, row) => ["run", run, "group", row.kind, row.step, row.group_index];
export const diffName = (run, row) => [run, row.kind, row.step, row.group_index, row.index].join("/");
