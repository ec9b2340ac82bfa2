package postgres

// Settings and Schema are for tests that open whole databases.
var Settings = postgresSettings

const Schema = postgresSchema
