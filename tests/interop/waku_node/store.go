package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"os"
	"slices"
	"sync"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-msgio/pbio"
	"github.com/waku-org/go-waku/waku/v2/protocol"
	"github.com/waku-org/go-waku/waku/v2/protocol/store"
	"github.com/waku-org/go-waku/waku/v2/protocol/store/pb"
	"google.golang.org/protobuf/proto"
)

// messageStore is the store v3 service (13/WAKU2-STORE), which go-waku has as a client only. It keeps every message
// that the node's relay validated, in the order of timestamps, and appends it to a file so that it outlives the node.
type messageStore struct {
	mutex sync.RWMutex
	// Ordered by timestamp, then by hash.
	entries []*pb.WakuMessageKeyValue
	known   map[string]bool
	file    *os.File
}

func openStore(path string) (*messageStore, error) {
	s := &messageStore{known: map[string]bool{}}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	reader := bufio.NewReader(file)
	for {
		size, err := binary.ReadUvarint(reader)
		if err != nil {
			break
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(reader, data); err != nil {
			// The node was killed while it wrote this one.
			break
		}
		entry := new(pb.WakuMessageKeyValue)
		if proto.Unmarshal(data, entry) == nil {
			s.insert(entry)
		}
	}
	s.file = file
	return s, nil
}

func (s *messageStore) add(envelope *protocol.Envelope) error {
	message := envelope.Message()
	if message.GetEphemeral() {
		return nil
	}
	hash := envelope.Hash()
	topic := envelope.PubsubTopic()
	entry := &pb.WakuMessageKeyValue{MessageHash: hash[:], Message: message, PubsubTopic: &topic}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.insert(entry) {
		return nil
	}
	data, err := proto.Marshal(entry)
	if err != nil {
		return err
	}
	_, err = s.file.Write(append(binary.AppendUvarint(nil, uint64(len(data))), data...))
	return err
}

func (s *messageStore) insert(entry *pb.WakuMessageKeyValue) bool {
	if s.known[string(entry.MessageHash)] {
		return false
	}
	s.known[string(entry.MessageHash)] = true
	at, _ := slices.BinarySearchFunc(s.entries, entry, compareEntries)
	s.entries = slices.Insert(s.entries, at, entry)
	return true
}

func compareEntries(a, b *pb.WakuMessageKeyValue) int {
	if a.Message.GetTimestamp() != b.Message.GetTimestamp() {
		if a.Message.GetTimestamp() < b.Message.GetTimestamp() {
			return -1
		}
		return 1
	}
	return bytes.Compare(a.MessageHash, b.MessageHash)
}

func (s *messageStore) record(ctx context.Context, envelopes <-chan *protocol.Envelope) {
	for {
		select {
		case <-ctx.Done():
			return
		case envelope, open := <-envelopes:
			if !open {
				return
			}
			if err := s.add(envelope); err != nil {
				panic(err)
			}
		}
	}
}

func (s *messageStore) serve(h host.Host) {
	h.SetStreamHandler(store.StoreQueryID_v300, func(stream network.Stream) {
		defer stream.Close()
		request := new(pb.StoreQueryRequest)
		if err := pbio.NewDelimitedReader(stream, math.MaxInt32).ReadMsg(request); err != nil {
			_ = stream.Reset()
			return
		}
		_ = pbio.NewDelimitedWriter(stream).WriteMsg(s.answer(request))
	})
}

func (s *messageStore) answer(request *pb.StoreQueryRequest) *pb.StoreQueryResponse {
	response := &pb.StoreQueryResponse{RequestId: request.RequestId}
	if err := request.Validate(); err != nil {
		response.StatusCode, response.StatusDesc = proto.Uint32(400), proto.String(err.Error())
		return response
	}
	response.StatusCode, response.StatusDesc = proto.Uint32(200), proto.String("OK")
	limit := int(request.GetPaginationLimit())
	if limit < 1 || limit > store.MaxPageSize {
		limit = store.DefaultPageSize
	}
	s.mutex.RLock()
	matching := s.matching(request)
	s.mutex.RUnlock()
	if cursor := request.GetPaginationCursor(); len(cursor) > 0 {
		at := slices.IndexFunc(matching, func(e *pb.WakuMessageKeyValue) bool { return bytes.Equal(e.MessageHash, cursor) })
		if at < 0 {
			response.StatusCode, response.StatusDesc = proto.Uint32(400), proto.String("invalid cursor")
			return response
		}
		if request.PaginationForward {
			matching = matching[at+1:]
		} else {
			matching = matching[:at]
		}
	}
	page := matching
	if len(page) > limit {
		// Backwards, pages go back in time, and each is chronological inside.
		if request.PaginationForward {
			page = page[:limit]
			response.PaginationCursor = page[limit-1].MessageHash
		} else {
			page = page[len(page)-limit:]
			response.PaginationCursor = page[0].MessageHash
		}
	}
	for _, entry := range page {
		if !request.IncludeData {
			entry = &pb.WakuMessageKeyValue{MessageHash: entry.MessageHash}
		}
		response.Messages = append(response.Messages, entry)
	}
	return response
}

func (s *messageStore) matching(request *pb.StoreQueryRequest) []*pb.WakuMessageKeyValue {
	wanted := map[string]bool{}
	for _, hash := range request.MessageHashes {
		wanted[string(hash)] = true
	}
	var found []*pb.WakuMessageKeyValue
	for _, entry := range s.entries {
		at := entry.Message.GetTimestamp()
		switch {
		case len(wanted) > 0:
			if !wanted[string(entry.MessageHash)] {
				continue
			}
		case entry.GetPubsubTopic() != request.GetPubsubTopic(),
			len(request.ContentTopics) > 0 && !slices.Contains(request.ContentTopics, entry.Message.ContentTopic),
			request.TimeStart != nil && at < request.GetTimeStart(),
			request.TimeEnd != nil && at > request.GetTimeEnd():
			continue
		}
		found = append(found, entry)
	}
	return found
}
