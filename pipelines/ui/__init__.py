"""Answers that only read: `statelake ui` for people in the browser, `statelake mcp` for assistants.

============  ========================================================================
`options`     what is shown of values, and what queries may take
`views`       what is shown, of a lake or of a directory with snapshots
`audit`       a line for each look at keys and values
`pages`       the pages, as HTML whose text is escaped by `report.markup`
`guard`       who may ask: the token, the cookie, the host and the origin
`query_pool`  where state is read: a few requests at once; queries end with them
`server`      the addresses, and the server on 127.0.0.1
`assistants`  the same answers as tools of the Model Context Protocol
`process`     the memory of the process that serves, and its end
============  ========================================================================

All state is in addresses, and nothing is loaded from elsewhere. `page.css` adds to the style of a
report. `page.js`, which completes names in a query, is the only script that the browser may run:
its hash is in each answer. All text comes from an untrusted snapshot.
"""
