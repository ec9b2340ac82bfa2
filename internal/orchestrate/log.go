package orchestrate

import (
	"context"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/proto"
)

// engineLog is what the engine logs to. What it tells of every instance is for debugging, and events, which
// hold what users put in, are named and not shown.
type engineLog struct{ log *slog.Logger }

func (l engineLog) write(level slog.Level, format string, v []any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	for i, a := range v {
		if m, ok := a.(proto.Message); ok {
			v[i] = m.ProtoReflect().Descriptor().Name()
		}
	}
	text := fmt.Sprint(v...)
	if format != "" {
		text = fmt.Sprintf(format, v...)
	}
	l.log.Log(context.Background(), level, "orchestration engine", slog.String("message", text))
}

func (l engineLog) Debug(v ...any)            { l.write(slog.LevelDebug, "", v) }
func (l engineLog) Debugf(f string, v ...any) { l.write(slog.LevelDebug, f, v) }
func (l engineLog) Info(v ...any)             { l.write(slog.LevelDebug, "", v) }
func (l engineLog) Infof(f string, v ...any)  { l.write(slog.LevelDebug, f, v) }
func (l engineLog) Warn(v ...any)             { l.write(slog.LevelWarn, "", v) }
func (l engineLog) Warnf(f string, v ...any)  { l.write(slog.LevelWarn, f, v) }
func (l engineLog) Error(v ...any)            { l.write(slog.LevelError, "", v) }
func (l engineLog) Errorf(f string, v ...any) { l.write(slog.LevelError, f, v) }
