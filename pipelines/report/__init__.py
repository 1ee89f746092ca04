"""A snapshot as one page of HTML that needs nothing but a browser: a picture to send.

=============  ======================================================================
`contents`     what a report says, as values
`gathering`    these values, of a savepoint or of a job's snapshot in a lake
`drawing`      key groups and growth as pictures
`markup`       HTML in which everything is escaped that is not HTML already
`page`         the page
=============  ======================================================================

`page.css` and `page.js` are put into the page. All text comes from a snapshot that nobody trusts:
`markup` escapes it, and the page's own policy lets no other script or style than these two run.
"""
