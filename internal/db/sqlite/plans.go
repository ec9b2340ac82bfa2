package sqlite

import (
	"fmt"
	"reflect"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"
)

// open opens a connection that plans each of its statements once, whatever values it is run with
// (sqlite.org/queryplanner-ng.html, "The Query Planner Stability Guarantee").
// Otherwise SQLite would prepare many anew each time, for it looks for the values 0 and 1. As
// zombiezen.com/go/sqlite has no function for that, its handle is read.
func open(path string, flags ...sqlite.OpenFlags) (*sqlite.Conn, error) {
	raw, err := sqlite.OpenConn(path, flags...)
	if err != nil {
		return nil, err
	}
	tls := libc.NewTLS()
	defer tls.Close()
	on := libc.NewVaList(int32(1), uintptr(0)) // and nowhere to tell the setting
	defer libc.Xfree(tls, on)
	if code := lib.Xsqlite3_db_config(tls, handle(raw, "conn"), lib.SQLITE_DBCONFIG_ENABLE_QPSG, on); code != lib.SQLITE_OK {
		raw.Close()
		return nil, fmt.Errorf("sqlite: plans cannot be kept: code %d", code)
	}
	return raw, nil
}

// handle returns C's pointer in a field of a connection or a statement. It panics if there is no
// such field.
func handle(of any, field string) uintptr {
	return uintptr(reflect.ValueOf(of).Elem().FieldByName(field).Uint())
}
