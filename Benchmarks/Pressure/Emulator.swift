import Glibc

/// Makes QEMU's emulator drop all code that it has translated.
///
/// Without KVM, QEMU translates the machine's code, and marks the pages that it comes from. Each write to such a page is
/// slow until all of its code is dropped: 4 ms for a page, measured. When memory runs short, pages of programs are
/// evicted and given to the application in front, which then waits for the emulator instead of for memory. QEMU drops
/// everything only when its buffer for translated code is full (`-accel tcg,tb-size=`). So this fills the buffer.
enum Emulator {
    /// Bytes of code that are translated at a time.
    private static let chunk = 64 << 10
    /// More than this is never needed: each byte becomes some 20 bytes, and `scripts/bench-pressure` sets the buffer to
    /// 128 MiB. With KVM, nothing is translated.
    private static let most = 24 << 20

    static func forget() {
        #if arch(x86_64)
            let protection = PROT_READ | PROT_WRITE | PROT_EXEC
            guard let pages = mmap(nil, most, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                pages != MAP_FAILED
            else { Scene.fail("no memory that can be executed: \(String(cString: strerror(errno)))") }
            fill(pages)
            let first = run(pages)
            var used = chunk
            while used < most {
                fill(pages + used)
                _ = run(pages + used)
                used += chunk
                // The first chunk runs fast, unless it has to be translated again: then the buffer was full just now.
                if run(pages) > first / 3 { break }
            }
            // These pages are marked now, too. Writing removes the marks.
            memset(pages, 0, used)
            munmap(pages, most)
        #endif
    }

    #if arch(x86_64)
        /// Writes a function that fills a chunk.
        private static func fill(_ start: UnsafeMutableRawPointer) {
            // mov %rax, -8(%rsp): the eight bytes below the stack pointer belong to the function.
            let instruction: [UInt8] = [0x48, 0x89, 0x44, 0x24, 0xf8]
            let count = (chunk - 1) / instruction.count
            for number in 0..<count {
                (start + number * instruction.count).copyMemory(
                    from: instruction, byteCount: instruction.count)
            }
            (start + count * instruction.count).storeBytes(of: 0xc3, as: UInt8.self)  // ret
        }

        /// Runs it, and returns how long that took, in microseconds.
        private static func run(_ start: UnsafeMutableRawPointer) -> UInt64 {
            let begin = now
            unsafeBitCast(start, to: (@convention(c) () -> Void).self)()
            return now - begin
        }
    #endif
}
