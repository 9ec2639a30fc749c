// Where the server's addresses begin: below a path of their own, if a proxy puts them there.

export const root = new URL("..", import.meta.url).pathname.replace(/\/$/, "");
