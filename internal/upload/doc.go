// Package upload takes files in pieces, over any number of connections, and puts each where it belongs once all of it is here.
//
// It is not a file system: what is here waits to be committed, and goes if nobody adds anything for a day
// ([holt.UploadKept]). It does not know HTTP; package server speaks tus and JSON.
//
// Form: one row of the control database ([Schema]) and one file of the data directory each, whose length is the upload's
// offset: what a killed daemon had taken is what the next one has. Only while a piece comes that counts whole or not at all
// does the row say where it began ([SureSchema]): until it was checked the offset is that. The computer or workspace
// of its spec is an id. A commit compares the
// SHA-256, writes the file through the noun of the computer's or workspace's files, then
// records what was written, and removes the bytes here. One that is killed between these writes the same bytes once
// more. Together uploads may take half of what the disk has for them.
//
// One call adds to an upload at a time. Whoever comes to add, or asks where to go on, takes it over: the connection of
// the one before is most likely dead, and its end has not been noticed yet.
//
// Lock order: an upload's own turn, then Store.mu.
package upload
