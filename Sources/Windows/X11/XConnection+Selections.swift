import CXCB
import Glibc

/// The owners of selections (XFixes 1.0, "SelectSelectionInput").
extension XConnection {
    /// Makes the server report every new owner of these selections, and owners that are gone.
    ///
    /// - Throws: `unreachable` if it lacks XFixes.
    func watch(selections: [xcb_atom_t]) throws(ObserverFailure) {
        guard let fixes = cxcb_xfixes_extension(pointer), fixes.pointee.present != 0,
            // It answers nothing else before it was asked for its version.
            let reply = reply(
                xcb_xfixes_query_version(pointer, 1, 0).sequence, as: xcb_xfixes_query_version_reply_t.self)
        else {
            throw .unreachable(
                "the X server at display \(display) lacks XFixes: it does not report clipboard changes")
        }
        free(reply)
        selectionNotify = Int32(fixes.pointee.first_event) + XCB_XFIXES_SELECTION_NOTIFY
        let mask =
            XCB_XFIXES_SELECTION_EVENT_MASK_SET_SELECTION_OWNER.rawValue
            | XCB_XFIXES_SELECTION_EVENT_MASK_SELECTION_WINDOW_DESTROY.rawValue
            | XCB_XFIXES_SELECTION_EVENT_MASK_SELECTION_CLIENT_CLOSE.rawValue
        for selection in selections {
            xcb_xfixes_select_selection_input(pointer, root, selection, mask)
        }
    }

    /// The windows that own these selections, without selections that have no owner. Takes a round trip.
    func owners(of selections: [xcb_atom_t]) -> [xcb_atom_t: xcb_window_t] {
        let cookies = selections.map { ($0, xcb_get_selection_owner(pointer, $0)) }
        var owners: [xcb_atom_t: xcb_window_t] = [:]
        for (selection, cookie) in cookies {
            guard let reply = reply(cookie.sequence, as: xcb_get_selection_owner_reply_t.self) else {
                continue
            }
            defer { free(reply) }
            if reply.pointee.owner != xcb_window_t(XCB_NONE) { owners[selection] = reply.pointee.owner }
        }
        return owners
    }
}
