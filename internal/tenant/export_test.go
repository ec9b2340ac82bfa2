package tenant

// BytePage is how many rows one read sums.
const BytePage = bytePage

// SQLTenantNumbered finds a tenant for the check of a condition.
const SQLTenantNumbered = sqlTenantNumbered
