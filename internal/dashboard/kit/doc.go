// Package kit is what all pages of the dashboard share. That is the request of a page, its
// layout, its navigation, and how times, money, states and bars look.
//
// A page is a client of Forebay's own HTTP API. [Request.Client] calls it in this process, as
// who has signed in. So a page can show and change what its caller may, and nothing else. Each
// page lists the requests that it made, and the commands that do the same.
//
// A page is plain HTML: links, forms, and drawings in SVG. It works without a script. The
// script fetches the page again when something has changed, and morphs what differs. The state
// of a page is in its address.
package kit
