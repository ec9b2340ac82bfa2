// Package files keeps the files of OpenAI's API, by tenant.
//
// The content of a file goes to blob storage as it arrives and is never held in memory. A row
// says what is known of it. A file that was deleted or has expired is found by nobody. Its row
// and its content go in the background, once no batch reads it any more.
//
// A client that repeats an upload gets the file that the first request made. The file is found by
// the idempotency key, or by the content where an SDK says that it tries again.
package files
