"""A snapshot as one page of HTML, which needs only a browser.

=============  ======================================================================
`contents`     the values of a report
`gathering`    these values, of a savepoint or of a job's snapshot in a lake
`drawing`      key groups and growth as pictures
`markup`       HTML elements, whose text is escaped
`page`         the page
=============  ======================================================================

`page.css` and `page.js` are put into the page. All text comes from an untrusted snapshot: `markup`
escapes it, and the page's own policy allows no other script or style.
"""
