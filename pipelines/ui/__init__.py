"""A local page in the browser, which only reads: `statelake ui`.

=========  ===========================================================================
`views`    what the pages show, of a lake or of a directory with snapshots
`pages`    the pages, as HTML whose text is escaped by `report.markup`
`guard`    who may ask: the token, the cookie, the host and the origin
`server`   the addresses, and the server on 127.0.0.1
=========  ===========================================================================

All state is in addresses, and nothing is loaded from elsewhere. `page.css` adds to the style of a
report. `page.js`, which completes names in a query, is the only script that the browser may run:
its hash is in each answer. All text comes from an untrusted snapshot.
"""
