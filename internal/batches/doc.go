// Package batches runs the batches of OpenAI's API: files whose lines become jobs.
//
// # The life of a batch
//
// A batch is a row of batches. A process that has its lease first reads the whole input and
// checks each line. If one is wrong, the batch has failed and no line runs. Then lines become
// jobs, a bounded number at a time: while too few wait, the next ones are read from where the
// former ended. The same transaction makes the jobs, their rows in batch_lines and the place in
// the input. So no line ever becomes two jobs.
//
// What ends a job notes that in its line and in the counts of its batch, in the same transaction.
// Once all lines have ended, their results are written to two files in the order of the lines:
// one of answers, one of errors. The transaction that makes these files ends the batch. Lines
// that never ran because the batch was cancelled or its window has closed are in the file of
// errors.
//
// # Processes
//
// Any process that does jobs works on batches. A lease of ten seconds says whose a batch is.
// Each transaction names the lease, so a process that has lost it changes nothing. A batch is due
// when there is something to do. The transaction that ends the lines it waited for makes it due.
//
// # Priority
//
// Lines have a low priority, and jobs of their queue below the default priority leave deployments
// to others that wait for them (jobs.Queue.Spare). When the rest of a batch would not be done in
// time at the pace so far, the priority rises. It rises also for lines that wait already. At the
// default priority they no longer yield.
package batches
