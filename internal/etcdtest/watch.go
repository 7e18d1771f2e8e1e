package etcdtest

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// watches begin when they are asked for, and tell of no change.
type watches struct {
	pb.UnimplementedWatchServer
	server *Server
}

// Watch answers until the client goes.
func (w *watches) Watch(stream pb.Watch_WatchServer) error {
	for begun := int64(0); ; {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		if request.GetCreateRequest() == nil {
			continue
		}
		if err := stream.Send(&pb.WatchResponse{Header: w.server.header(), WatchId: begun, Created: true}); err != nil {
			return err
		}
		begun++
	}
}

func (s *Server) header() *pb.ResponseHeader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.ResponseHeader{ClusterId: s.Cluster(), Revision: s.revision}
}
