package tenant

// BytePage is how many rows one read sums.
const BytePage = bytePage
